// The page of one job or workload, at the address #/jobs/NAMESPACE/NAME or #/workloads/NAMESPACE/NAME.

import { el } from "./dom.js";
import { PolicyAnswers } from "./parts.js";
import { describe } from "./subject.js";
import { UseChart } from "./use.js";

const PAUSE_MS = 1000; // between a change in the cluster and the next request

export class DetailPage {
  /** `get(path)` fetches JSON from the console's server. */
  constructor(node, get) {
    Object.assign(this, { node, get, subject: null, last: "", timer: 0 });
  }

  /** `kind` is `jobs` or `workloads`. */
  open(kind, namespace, name) {
    this.subject = { kind: kind === "workloads" ? "workload" : "job", namespace, name };
    this.last = "";
    this.answers = new PolicyAnswers(() => this.get(`policies?${new URLSearchParams(this.subject)}`));
    this.chart = new UseChart();
    this.node.replaceChildren(el("p", { class: "empty" }, "Loading"));
    this.node.hidden = false;
    document.title = `${namespace}/${name} – Partita`;
    this.load();
  }

  close() {
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
      const text = JSON.stringify(found);
      if (text === this.last) return;
      this.last = text;
      this.chart.show(found.use);
      parts = describe(found, this.chart.node, this.answers.node);
    } catch (error) {
      this.last = "";
      parts = [el("h1", {}, `${subject.namespace}/${subject.name}`), el("p", { class: "trouble" }, `This ${subject.kind} cannot be shown: ${error.message}.`)];
    }
    if (subject !== this.subject) return;
    const focused = this.node.contains(document.activeElement) ? document.activeElement : null;
    this.node.replaceChildren(el("p", {}, el("a", { href: "#" }, "← All jobs and workloads")), ...parts);
    if (focused?.isConnected) focused.focus();
  }
}
