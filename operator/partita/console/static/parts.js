// Parts of the pages of jobs and workloads.

import { el } from "./dom.js";
import { amount, spaced, time } from "./words.js";

/** A guarantee, and the ceiling if it is above that. */
export const upTo = (bytes, limit) => (limit ? `${amount(bytes)} (up to ${amount(limit)})` : amount(bytes));

export const card = (title, ...content) => el("section", { class: "card" }, el("h2", {}, title), ...content);

export function list(pairs) {
  const rows = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", { class: "facts" }, ...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))]));
}

/** Commands for a terminal, one on each line. */
export const terminal = (lines) => el("ul", { class: "commands" }, ...lines.map((line) => el("li", {}, el("code", {}, line))));

export function events(subject) {
  if (subject.eventsProblem) return el("p", { class: "empty" }, subject.eventsProblem);
  if (!subject.events.length) return el("p", { class: "empty" }, "There are none. Kubernetes keeps Events for an hour by default.");
  return el("ul", { class: "events" }, ...subject.events.map((event) =>
    el("li", {}, el("strong", { "data-type": event.type }, spaced(event.reason)), el("span", { class: "kind" }, time(Date.parse(event.time) / 1000)), el("p", { class: "said" }, event.message))));
}

/** A prediction as text; empty without one. */
const slower = (found) => (found?.measured ? `predicted to take ${found.factor.toFixed(2)} times as long as alone` : "");

const WORDS = { start: "Starts it", wait: "Does not start it", fail: "Fails" };

/** A button that asks the server what each policy would do, and the answers. */
export class PolicyAnswers {
  constructor(ask) {
    this.ask = ask;
    this.button = el("button", { type: "button" }, "Ask the policies");
    this.result = el("div", { class: "asked" });
    this.node = el("div", { class: "ask" }, el("p", { class: "hint" }, "One scheduling cycle is computed with each installed policy. Nothing is written."), this.button, this.result);
    this.button.addEventListener("click", () => this.load());
  }

  async load() {
    this.button.disabled = true;
    this.button.textContent = "Asking";
    try {
      const { waits, answers } = await this.ask();
      this.show(waits, answers);
    } catch (error) {
      this.result.replaceChildren(el("p", { class: "refused" }, `The policies were not asked: ${error.message}.`));
    }
    this.button.disabled = false;
    this.button.textContent = "Ask the policies again";
  }

  show(waits, answers) {
    const parts = waits || !answers.length ? [] : [el("p", { class: "hint" }, "If it were still waiting:")];
    if (!answers.length) parts.push(el("p", { class: "empty" }, "No policy can place it: see the reason above."));
    let before = "";
    const rows = answers.map((one) => {
      const said = describe(one);
      const row = answer(one, one.decision === "wait" && said === before ? "For the same reason" : said);
      if (one.decision === "wait") before = said;
      return row;
    });
    this.result.replaceChildren(...parts, el("ul", { class: "answers" }, ...rows));
  }
}

function describe(one) {
  const where = one.gpus.length ? `on ${one.gpus.join(", ")} beside ${one.beside.join(", ") || "nothing else"}` : "";
  return [where, one.beside.length ? slower(one.slowdown) : "", one.reason && spaced(one.reason), one.message].filter(Boolean).join(": ");
}

function answer(one, said) {
  return el(
    "li",
    { "data-decision": one.decision },
    el("div", { class: "line" }, el("strong", {}, one.policy), ...(one.role ? [el("span", { class: "role", "data-role": one.role }, one.role)] : []), el("span", { class: "decision" }, WORDS[one.decision])),
    el("p", { class: "said" }, said),
  );
}
