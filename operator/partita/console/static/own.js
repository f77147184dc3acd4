// What a viewer does with his own rights: reads logs, and suspends, resumes and retries jobs.

import { el } from "./dom.js";

const NOTES = {
  suspend: "A program that runs is ended, and starts again when the job is resumed.",
  resume: "The job is queued again.",
  retry: "The job is queued again, and its retry limits start at zero.",
};
const ESCAPES = /\x1b\[[\d;?]*[A-Za-z]/g; // colours and cursor movements of terminals
const OVERWRITTEN = /^.*\r(?!$)/gm; // what a progress bar has written over
const KEPT = 2 ** 18; // characters of a log that are shown, at most

const sentence = (text) => text && `${text[0].toUpperCase()}${text.slice(1)}.`;

/** A button whose action is done once at a time; what refuses it is said in `problem`. */
function action(text, problem, act) {
  const button = el("button", { type: "button" }, text);
  button.addEventListener("click", async () => {
    button.disabled = true;
    problem.textContent = "";
    try {
      await act();
    } catch (error) {
      problem.textContent = sentence(error.message);
    }
    button.disabled = false;
  });
  return button;
}

/** The end of the log of one of its Pods, when it is asked for, and new lines while the page is open. */
export class Log {
  /** `read(about, signal, onEvent)` reads the server's events about a log. */
  constructor(read) {
    Object.assign(this, { read, pods: "", following: null, frame: 0, kept: "" });
    this.pod = el("select", { "aria-label": "Pod" });
    this.container = el("select", { "aria-label": "Container", hidden: "" });
    this.problem = el("p", { class: "refused", role: "status" });
    this.state = el("p", { class: "hint", role: "status" });
    this.lines = document.createTextNode("");
    this.text = el("pre", { class: "log", tabindex: "0", "aria-label": "Log", hidden: "" }, this.lines);
    const show = el("button", { type: "button" }, "Show the log");
    show.addEventListener("click", () => this.follow());
    this.pod.addEventListener("change", () => this.container.replaceChildren());
    this.node = el("div", { class: "ask" }, el("div", { class: "line" }, this.pod, this.container, show), this.problem, this.text, this.state);
  }

  /** Offer the Pods of a job or workload, the latest first. */
  offer({ pod, attempts = [] }) {
    const pods = [...new Set([pod, ...attempts.map((attempt) => attempt.pod)])].filter(Boolean);
    if (pods.join() === this.pods) return;
    this.pods = pods.join();
    this.pod.replaceChildren(...pods.map((name) => el("option", {}, name)));
    this.container.replaceChildren();
  }

  async follow() {
    this.close();
    const { signal } = (this.following = new AbortController());
    const asked = { pod: this.pod.value, ...(this.container.value && { container: this.container.value }) };
    let ended = "";
    const take = {
      log: ({ container, containers }) => this.begin(container, containers),
      text: ({ text }) => this.add(text),
      end: ({ why }) => (ended = why),
      still() {},
    };
    const why = await this.read(asked, signal, (name, text) => take[name](JSON.parse(text))).catch((error) => error.message);
    if (signal.aborted) return;
    this.state.textContent = ended && `No more lines come: ${ended}.`;
    this.problem.textContent = ended ? "" : sentence(why);
  }

  close() {
    this.following?.abort();
    cancelAnimationFrame(this.frame);
    this.text.hidden = true;
    this.state.textContent = this.problem.textContent = "";
  }

  begin(container, containers) {
    this.container.replaceChildren(...containers.map((name) => el("option", {}, name)));
    this.container.value = container;
    this.container.hidden = containers.length < 2;
    this.kept = this.lines.data = "";
    this.frame = 0;
    this.state.textContent = "New lines are added as they come.";
  }

  add(text) {
    this.kept = (this.kept + text).slice(-KEPT);
    this.frame ||= requestAnimationFrame(() => this.show());
  }

  show() {
    const { text, lines } = this;
    const atEnd = text.hidden || text.scrollHeight - text.scrollTop - text.clientHeight < 4;
    const shown = this.kept.replace(ESCAPES, "").replace(OVERWRITTEN, "");
    this.frame = 0;
    text.hidden = false;
    if (shown.startsWith(lines.data)) lines.appendData(shown.slice(lines.length)); // what is selected stays so
    else lines.data = shown;
    if (atEnd) text.scrollTop = text.scrollHeight;
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
