// The page of one job or workload, at the address #/jobs/NAMESPACE/NAME or #/workloads/NAMESPACE/NAME.

import { arrange, el } from "./dom.js";
import { Changes, Log } from "./own.js";
import { card, PolicyAnswers } from "./parts.js";
import { describe } from "./subject.js";
import { UseChart } from "./use.js";

const PAUSE_MS = 1000; // between a change in the cluster and the next request

export class DetailPage {
  /**
   * `get(path, body)` fetches JSON from the console's server, or sends it some; `read` reads its events.
   * `addressOf(name)` is the address of the page of a job or workload, by `namespace/name`.
   */
  constructor(node, get, read, addressOf) {
    Object.assign(this, { node, get, read, addressOf, subject: null, last: "", timer: 0 });
    this.back = el("p", {}, el("a", { href: "#" }, "← All jobs and workloads"));
  }

  /** `kind` is `jobs` or `workloads`. */
  open(kind, namespace, name) {
    this.subject = { kind: kind === "workloads" ? "workload" : "job", namespace, name };
    this.last = "";
    const about = (more) => new URLSearchParams({ ...this.subject, ...more });
    this.answers = new PolicyAnswers(() => this.get(`policies?${about()}`));
    this.chart = new UseChart();
    this.log = new Log((more, signal, onEvent) => this.read(`log?${about(more)}`, signal, onEvent));
    this.changes = new Changes(async (change) => {
      await this.get(`change?${about({ change })}`, {});
      this.changed();
    });
    this.cards = {
      use: card("Use of the slice", this.chart.node),
      changes: card("Change it", this.changes.node),
      log: card("Log", this.log.node),
      answers: card("What each policy would do now", this.answers.node),
    };
    this.node.replaceChildren(this.back, el("p", { class: "empty" }, "Loading"));
    this.node.hidden = false;
    document.title = `${namespace}/${name} – Partita`;
    this.load();
  }

  close() {
    this.log.close();
    this.subject = null;
    this.node.hidden = true;
    this.node.replaceChildren();
    clearTimeout(this.timer);
    this.timer = 0;
    document.title = "Partita";
  }

  /** Something in the cluster has changed: ask again, at most once a second. */
  changed() {
    if (this.subject && !this.timer) this.timer = setTimeout(() => this.load(), PAUSE_MS);
  }

  async load() {
    this.timer = 0;
    const { subject } = this;
    let parts;
    try {
      const found = await this.get(`detail?${new URLSearchParams(subject)}`);
      if (subject !== this.subject) return;
      const text = JSON.stringify(found);
      if (text === this.last) return;
      this.last = text;
      this.chart.show(found.use);
      this.log.offer(found);
      this.changes.offer(found);
      parts = describe(found, this.cards, this.addressOf);
    } catch (error) {
      const passes = !error.status || error.status >= 500; // what is shown stays, and the page says that it is old
      if (subject !== this.subject || (this.last && passes)) return;
      this.last = "";
      parts = [el("h1", {}, `${subject.namespace}/${subject.name}`), el("p", { class: "trouble" }, `This ${subject.kind} cannot be shown: ${error.message}.`)];
    }
    arrange(this.node, [this.back, ...parts]);
  }
}
