// What a viewer does with his own rights: reads logs, and suspends, resumes and retries jobs.

import { el } from "./dom.js";

const NOTES = {
  suspend: "A program that runs is ended, and starts again when the job is resumed.",
  resume: "The job is queued again.",
  retry: "The job is queued again, and its retry limits start at zero.",
};
const ESCAPES = /\x1b\[[\d;?]*[A-Za-z]/g; // colours and cursor movements of terminals
const OVERWRITTEN = /^.*\r(?!$)/gm; // what a progress bar has written over

/** A button whose action is done once at a time; what refuses it is said in `problem`. */
function action(text, problem, act) {
  const button = el("button", { type: "button" }, text);
  button.addEventListener("click", async () => {
    button.disabled = true;
    problem.textContent = "";
    try {
      await act();
    } catch (error) {
      problem.textContent = `${error.message[0].toUpperCase()}${error.message.slice(1)}.`;
    }
    button.disabled = false;
  });
  return button;
}

/** The end of the log of one of its Pods, when it is asked for. */
export class Log {
  constructor(ask) {
    Object.assign(this, { ask, pods: "" });
    this.pod = el("select", { "aria-label": "Pod" });
    this.container = el("select", { "aria-label": "Container", hidden: "" });
    this.problem = el("p", { class: "refused", role: "status" });
    this.text = el("pre", { class: "log", tabindex: "0", "aria-label": "Log", hidden: "" });
    const show = action("Show the log", this.problem, () => this.load());
    this.pod.addEventListener("change", () => this.container.replaceChildren());
    this.node = el("div", { class: "ask" }, el("div", { class: "line" }, this.pod, this.container, show), this.problem, this.text);
  }

  /** Offer the Pods of a job or workload, the latest first. */
  offer({ pod, attempts = [] }) {
    const pods = [...new Set([pod, ...attempts.map((attempt) => attempt.pod)])].filter(Boolean);
    if (pods.join() === this.pods) return;
    this.pods = pods.join();
    this.pod.replaceChildren(...pods.map((name) => el("option", {}, name)));
    this.container.replaceChildren();
  }

  async load() {
    const asked = { pod: this.pod.value, ...(this.container.value && { container: this.container.value }) };
    this.text.hidden = true;
    const { text, container, containers } = await this.ask(asked);
    this.container.replaceChildren(...containers.map((name) => el("option", {}, name)));
    this.container.value = container;
    this.container.hidden = containers.length < 2;
    this.text.textContent = text.replace(ESCAPES, "").replace(OVERWRITTEN, "") || "The log is empty.";
    this.text.hidden = false;
    this.text.scrollTop = this.text.scrollHeight;
  }
}

/** Buttons that suspend, resume and retry a job. */
export class Changes {
  constructor(change) {
    this.change = change;
    this.node = el("div", { class: "ask" });
  }

  offer({ changes, changesProblem }) {
    const state = JSON.stringify([changes, changesProblem]);
    if (state === this.state) return;
    this.state = state;
    const problem = el("p", { class: "refused", role: "status" }, changesProblem);
    const buttons = changes.map((change) => {
      const button = action(change[0].toUpperCase() + change.slice(1), problem, async () => {
        if (change !== "suspend" || confirm(`Suspend this job? ${NOTES.suspend}`)) await this.change(change);
      });
      button.disabled = changesProblem !== "";
      return el("div", { class: "line" }, button, el("span", { class: "hint" }, NOTES[change]));
    });
    this.node.replaceChildren(...buttons, problem);
  }
}
