// The growing string of lines -> lanes, iterations, tokens. Only what was appended is parsed; a string that is no
// continuation of the last one starts over.
(function () {
  "use strict";
  const sv = window.specviz;
  const PHASES = ["draft", "target", "verify", "commit", "record"];
  sv.PHASES = PHASES;

  class Lane {
    constructor(key, label, number) {
      Object.assign(this, { key, label, number, head: null, its: [], tokens: [], time: 0, prefill: 0, state: "waiting", message: "", stop: "", end: null });
      Object.assign(this, { split: [0, 0, 0, 0, 0], passes: 0, rounds: 0, examined: 0, accepted: 0 });
      this.changed = []; // tokens shown differently since a later one completed their character; every view keeps its place in it
      this.joiner = new sv.bytes.Joiner();
    }
    add(line) {
      const [, index, start, seconds, passes, letters, names, reason = "", stop = "", message = "", prefill = 0, parents = null] = line;
      const it = { index, start, seconds, passes, letters, reason, stop, message, parents, first: this.tokens.length, count: 0, time: 0 };
      it.time = seconds.reduce((sum, x) => sum + x, 0);
      it.names = names.split(",");
      seconds.forEach((x, k) => { this.split[k] += x; });
      this.time += it.time;
      this.prefill += prefill;
      this.passes += passes;
      if (!letters.endsWith("x")) this.rounds += 1; // x: ended before the target's verdict
      if (letters.endsWith("c")) this.examined += 1; // the one position where the round was rejected
      for (let k = 0; k < letters.length; k++) {
        const letter = letters[k];
        if (letter === "a") { this.accepted += 1; this.examined += 1; }
        if (!"abcp".includes(letter)) continue;
        const token = Object.assign(sv.bytes.parse(it.names[k]), { it: index, node: k, letter, n: this.tokens.length });
        for (const earlier of this.joiner.push(token)) this.changed.push(earlier.n);
        this.tokens.push(token);
        it.count += 1;
      }
      it.done = this.time;
      this.its.push(it);
      this.state = "running";
      if (stop) Object.assign(this, { state: stop === "error" || stop === "stopped" ? stop : "done", stop, message });
    }
    // a label may be the name of a string, so that it follows the language
    get name() { return sv.has(this.label) ? sv.t(this.label) : this.label; }
    get speed() { return this.time > 0 ? this.tokens.length / this.time : NaN; }
    get tau() { return this.rounds ? this.tokens.length / this.rounds : NaN; }
    get alpha() { return this.examined ? this.accepted / this.examined : NaN; }
    // tokens/s over the last second of the lane's own clock, at least four iterations
    now(at = this.its.length - 1) {
      let tokens = 0, time = 0;
      for (let k = at; k >= 0 && (time < 1 || at - k < 4); k--) { tokens += this.its[k].count; time += this.its[k].time; }
      return time > 0 ? tokens / time : NaN;
    }
    get over() { return ["done", "error", "stopped", "refused"].includes(this.state); }
  }

  class Channel {
    constructor() { this.reset(); this.views = new Set(); this.pinned = null; }
    reset() { Object.assign(this, { value: "", seen: 0, run: null, lanes: [], byKey: {}, note: null, generation: (this.generation || 0) + 1 }); }
    feed(value) {
      const next = typeof value === "string" ? value : "";
      if (next === this.value || (next && this.value.startsWith(next))) return;
      if (!next.startsWith(this.value) || !this.value) { this.reset(); }
      this.value = next;
      const end = next.lastIndexOf("\n") + 1;
      for (const line of next.slice(this.seen, end).split("\n")) if (line) this.read(line);
      this.seen = end;
      this.count();
      this.touch(false);
    }
    read(line) {
      let value;
      try { value = JSON.parse(line); } catch (error) { sv.stats.bad += 1; return; }
      if (Array.isArray(value)) {
        if (this.byKey[value[0]]) this.byKey[value[0]].add(value);
        return;
      }
      const lane = this.byKey[value.lane];
      if (value.k === "run") {
        this.run = value.run;
        this.lanes = value.lanes.map(([key, label], number) => new Lane(key, label, number));
        this.byKey = Object.create(null);
        for (const one of this.lanes) this.byKey[one.key] = one;
      } else if (value.k === "head" && lane) {
        lane.head = value;
        if (!lane.over) lane.state = "ready";
      } else if (value.k === "note") {
        if (lane) Object.assign(lane, { state: value.state, message: value.message });
        else {
          this.note = value;
          for (const one of this.lanes) if (!one.over) one.state = value.state;
        }
      } else if (value.k === "end" && lane) lane.end = value;
    }
    count() {
      const stats = sv.stats;
      stats.run = this.run || "";
      stats.lanes = this.lanes.length;
      stats.tokens = this.lanes.reduce((sum, lane) => sum + lane.tokens.length, 0);
      stats.iterations = this.lanes.reduce((sum, lane) => sum + lane.its.length, 0);
      stats.ended = this.lanes.filter((lane) => lane.over).length;
    }
    touch(all) { for (const view of this.views) { if (all) view.stale = true; sv.soon(view.draw); } }
  }
  sv.channel = (name) => (sv.channels[name] ||= new Channel());
})();
