// The race: a headline that says who is faster, by how much and whether the text is the same; below it the lanes.
(function () {
  "use strict";
  const sv = window.specviz;
  const { h } = sv;
  const SIGNS = { faster: "▲", slower: "▼" };

  class Race {
    constructor(root, channel, pick) {
      this.channel = channel;
      this.pick = pick;
      this.stale = true;
      this.draw = this.draw.bind(this);
      this.head = h("div", { class: "sv-headline" });
      this.asked = h("p", { class: "sv-asked" });
      this.legend = h("div", { class: "sv-legend" });
      this.lanes = h("div", { class: "sv-lanes" });
      this.live = h("div", { class: "sv-hidden", "aria-live": "polite" });
      root.append(h("div", { class: "sv sv-race" }, this.asked, this.head, this.legend, this.lanes, this.live));
      channel.views.add(this);
      sv.soon(this.draw);
    }
    draw() {
      const { channel } = this;
      const fresh = this.stale || this.generation !== channel.generation;
      if (this.generation !== channel.generation) {
        this.generation = channel.generation;
        this.said = false;
        this.cards = channel.lanes.map((lane) => new sv.LaneCard(lane, this.pick));
        sv.put(this.lanes, this.cards.map((card) => card.node));
        this.lanes.dataset.count = this.cards.length;
      }
      this.stale = false;
      const speeds = channel.lanes.map((lane) => lane.speed).filter(sv.finite);
      const most = speeds.length ? 1.6 * Math.max(...speeds) : 0;
      for (const card of this.cards) card.draw(most, fresh);
      this.drawAsked();
      this.drawHead();
      if (fresh) this.drawLegend();
      sv.stats.race.rendered = this.cards.reduce((sum, card) => sum + card.shown, 0);
    }
    drawLegend() {
      const one = (kind) => h("span", null, h("span", { class: "sv-glyph sv-ink-" + kind, "aria-hidden": "true" }, sv.GLYPHS[kind]), h("span", { class: "sv-tok sv-" + kind }, sv.t("kind." + kind)));
      const brick = (kind) => h("span", null, h("i", { class: "sv-sample sv-sample-" + kind }), sv.t("bricks." + kind));
      sv.put(this.legend, one("accepted"), one("recovered"), one("bonus"), one("plain"), brick("target"), brick("draft"));
    }
    drawAsked() {
      const head = (this.channel.lanes.find((lane) => lane.head) || {}).head;
      this.asked.hidden = !head;
      if (!head || (this.askedOf === head && this.askedIn === sv.lang)) return;
      [this.askedOf, this.askedIn] = [head, sv.lang];
      const seed = sv.t("race.seed", { n: head.sampling.seed }), limit = sv.t("race.limit", { n: head.max_new });
      sv.put(this.asked, h("q", null, head.prompt), h("span", { class: "sv-dim" }, [sv.settings(head.sampling), seed, limit].join(" · ")));
    }
    drawHead() {
      const { channel } = this;
      this.head.hidden = channel.lanes.length === 1 && !channel.note && channel.lanes[0].key === "plain";
      const plain = channel.lanes.find((lane) => lane.head && lane.head.method === "plain");
      const others = channel.lanes.filter((lane) => lane !== plain);
      if (!channel.lanes.length) return void sv.put(this.head, h("p", { class: "sv-empty" }, channel.note ? this.noteText(channel.note) : sv.t("race.empty")));
      sv.put(this.head, channel.note && h("p", { class: "sv-note sv-note-" + channel.note.state }, this.noteText(channel.note)),
        others.map((lane) => this.verdict(lane, plain)));
      if (!this.said && channel.lanes.every((lane) => lane.over)) {
        this.said = true;
        sv.text(this.live, others.map((lane) => [lane.name, this.ratioText(lane, plain)].join(": ")).join("; "));
      }
    }
    noteText(note) { return [sv.t("state." + note.state), note.message].filter(Boolean).join(": "); }
    ratio(lane, plain) {
      if (lane.end && sv.finite(lane.end.speedup)) return lane.end.speedup;
      return plain && plain.its.length && lane.its.length ? lane.speed / plain.speed : NaN;
    }
    ratioText(lane, plain) {
      const ratio = this.ratio(lane, plain);
      return sv.finite(ratio) ? sv.fixed(ratio, 2) + "×" : "–";
    }
    verdict(lane, plain) {
      const ratio = this.ratio(lane, plain), end = lane.end;
      // as the number reads: 1.00 is neither
      const standing = sv.finite(ratio) ? ["slower", "even", "faster"][1 + Math.sign(Number(sv.fixed(ratio, 2)) - 1)] : "open";
      const slow = Boolean(end) && standing === "slower";
      const rows = [];
      if (plain && sv.finite(ratio)) {
        rows.push(h("div", { class: "sv-from" }, h("b", null, sv.speed(plain.speed)), ` ${plain.name} → `, h("b", null, sv.speed(lane.speed)), ` ${lane.name} · ${sv.t("unit.tokens")}`));
      } else rows.push(h("div", { class: "sv-from" }, lane.name + (lane.message ? " – " + lane.message : "")));
      if (end) rows.push(h("div", { class: "sv-checks" }, this.lossy(lane), this.same(end, !lane.head || lane.head.lossless), this.predicted(end, ratio), this.traced(lane)));
      else if (plain) rows.push(h("div", { class: "sv-checks" }, h("span", { class: "sv-dim" }, sv.t(lane.over && plain.over ? "race.noend" : "race.running"))));
      if (slow) rows.push(h("p", { class: "sv-slow" }, sv.t("race.slower"), " ", this.why(end)));
      return h("article", { class: "sv-verdict", "data-lane": lane.key, "data-standing": standing },
        h("div", { class: "sv-ratio" }, h("span", null, h("span", { class: "sv-ratio-number" }, this.ratioText(lane, plain)), SIGNS[standing] && h("span", { class: "sv-ratio-sign", "aria-hidden": "true" }, SIGNS[standing])), h("span", { class: "sv-ratio-word" }, this.basis(lane, plain))),
        h("div", { class: "sv-verdict-text" }, rows));
    }
    basis(lane, plain) {
      if (!plain) return sv.t("race.noplain");
      if ([lane, plain].some((one) => one.stop === "stopped" || one.state === "stopped")) return sv.t("race.stopped", { n: Math.min(lane.tokens.length, plain.tokens.length) });
      return sv.t(lane.end ? "race.measured" : "race.sofar");
    }
    predicted(end, ratio) {
      if (!sv.finite(end.predicted)) return h("span", { class: "sv-check sv-dim", title: sv.t("race.predicted.help") }, sv.t("race.nopredicted"));
      const gap = sv.finite(ratio) && Math.abs(end.predicted / ratio - 1) > 0.1;
      return h("span", { class: "sv-check", title: sv.t("race.predicted.help") }, sv.t("race.predicted", { n: sv.fixed(end.predicted, 2) }), gap && h("span", { class: "sv-dim" }, " " + sv.t("race.gap", { n: sv.percent(Math.abs(end.predicted / ratio - 1)) })));
    }
    same(end, lossless) {
      if (end.same === true) return h("span", { class: "sv-check sv-good" }, sv.t("race.same") + " ✓");
      if (end.same !== false) return h("span", { class: "sv-check sv-dim", title: sv.t(lossless ? "race.random.help" : "lane.lossy.help") }, sv.t("race." + (end.same_reason || "random")));
      const margin = sv.finite(end.margin) ? sv.t("race.margin", { n: end.margin < 0.001 ? end.margin.toExponential(1) : sv.fixed(end.margin, 3) }) : sv.t("race.nomargin");
      return h("span", { class: "sv-check " + (end.near_tie ? "sv-warn" : "sv-bad") }, sv.t("race.differs", { n: end.at + 1, margin }) + (end.near_tie ? " – " + sv.t("race.neartie") : ""));
    }
    lossy(lane) {
      return lane.head && !lane.head.lossless && h("span", { class: "sv-check sv-warn", title: sv.t("lane.lossy.help") }, sv.t("lane.lossy"));
    }
    traced(lane) {
      return lane.head && lane.head.capture > 0 && h("span", { class: "sv-check sv-dim", title: sv.t("lane.traced.help", { n: lane.head.capture }) }, sv.t("race.traced"));
    }
    why(end) {
      const reason = end.slower || { key: "unknown" };
      if (reason.key === "alpha" && reason.needed === null) return sv.t("slower.never", { v: sv.fixed(reason.v, 2), draft: sv.fixed(reason.draft, 2) });
      // alpha is one number for all depths; where it is not what the lane loses by (in a tree it need not be), the tokens a round are
      if (reason.key === "alpha" && (!(reason.alpha < reason.needed) || sv.percent(reason.alpha) === sv.percent(reason.needed))) {
        const [tau, even] = sv.pair(reason.tau, reason.even);
        return sv.t("slower.tau", { tau, even });
      }
      const shown = Object.fromEntries(Object.entries(reason).map(([name, x]) => [name, name === "alpha" || name === "needed" || name === "share" ? sv.percent(x) : typeof x === "number" ? sv.fixed(x, 2) : x]));
      const better = reason.best_speedup > 1.02 ? " " + sv.t("slower.try", { n: reason.best, x: sv.fixed(reason.best_speedup, 2) }) : "";
      return sv.t("slower." + reason.key, shown) + better;
    }
  }
  sv.views.race = Race;
})();
