// The two fixed parts of inspect: the rail (lanes, transport, scrubber) and the round (chips, why short, where time went).
(function () {
  "use strict";
  const sv = window.specviz;
  const { h } = sv;
  // Signs are drawn: not every system has these characters.
  const ICONS = {
    first: "M2 2h2v12H2zM14 2v12L5 8z", back: "M12 2v12L3 8z", play: "M4 2v12l10-6z", pause: "M3 2h4v12H3zM9 2h4v12H9z",
    forward: "M4 2v12l9-6z", final: "M2 2v12l9-6zM12 2h2v12h-2z", live: "M8 3a5 5 0 1 1 0 10A5 5 0 0 1 8 3z",
  };
  const icon = (name) => sv.s("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, sv.s("path", { d: ICONS[name] }));

  class Rail {
    constructor(view) {
      this.view = view;
      const button = (act, run) => (this[act] = h("button", { type: "button", class: "sv-button sv-transport", "data-act": act, on: { click: run } }, icon(act === "toggle" ? "play" : act)));
      this.lanes = h("div", { class: "sv-segs", role: "group" });
      this.range = h("input", { type: "range", class: "sv-range", min: 0, max: 0, value: 0, on: { input: () => view.pin(Number(this.range.value)) } });
      this.speed = h("select", { class: "sv-select", "data-act": "speed", on: { change: () => { view.speed = Number(this.speed.value); this.tick(); } } },
        sv.views.inspect.SPEEDS.map((x) => h("option", { value: x, selected: x === 1 }, x + "×")));
      this.where = h("span", { class: "sv-where" });
      this.clock = h("span", { class: "sv-clock sv-dim" });
      const transport = h("div", { class: "sv-transports", role: "group" },
        button("first", () => view.pin(0)), button("back", () => view.pin(view.it - 1)),
        button("toggle", () => (view.playing ? view.pause() : view.play())),
        button("forward", () => view.pin(view.it + 1)), button("final", () => view.pin(view.last)),
        this.speed, button("live", () => { view.pause(true); view.follow = !view.follow; sv.soon(view.draw); }));
      this.legend = h("div", { class: "sv-legend sv-legend-small" });
      this.node = h("div", { class: "sv-rail" }, h("div", { class: "sv-rail-row" }, this.lanes, transport, this.where), h("div", { class: "sv-rail-row" }, this.range, this.clock), this.legend);
    }
    draw(fresh) {
      const { view } = this, { lane, channel } = view;
      const key = channel.lanes.map((one) => one.key + one.label).join() + lane.key + sv.lang;
      if (key !== this.key || fresh) {
        this.key = key;
        sv.put(this.lanes, channel.lanes.map((one) => h("button", { type: "button", class: "sv-seg", "data-lane": one.key, "aria-pressed": String(one === lane), on: { click: () => view.choose(one) } }, one.name)));
        this.lanes.setAttribute("aria-label", sv.t("rail.lanes"));
        for (const act of ["first", "back", "toggle", "forward", "final", "speed", "live"]) {
          this[act].title = sv.t("rail." + act);
          this[act].setAttribute("aria-label", sv.t("rail." + act));
        }
        this.range.setAttribute("aria-label", sv.t("rail.range"));
        const one = (kind) => h("span", null, h("span", { class: "sv-glyph sv-ink-" + kind, "aria-hidden": "true" }, sv.GLYPHS[kind]), h("span", { class: "sv-tok sv-" + kind }, sv.t("kind." + kind)));
        sv.put(this.legend, ["accepted", "rejected", "recovered", "bonus", "untested"].map(one), h("span", { class: "sv-dim sv-keys" }, sv.t("rail.keys")));
      }
      this.range.max = view.last;
      if (Number(this.range.value) !== view.it) this.range.value = view.it;
      if (this.shows !== view.playing) sv.put(this.toggle, icon(view.playing ? "pause" : "play"));
      this.shows = view.playing;
      this.live.setAttribute("aria-pressed", String(view.follow));
      this.live.hidden = lane.over;
      sv.text(this.where, sv.t("rail.where", { i: view.it + 1, n: view.last + 1 }));
      this.range.setAttribute("aria-valuetext", this.where.textContent);
      this.tick();
    }
    tick() {
      const { view } = this;
      const words = { t: sv.seconds(view.clock), end: sv.seconds(view.lane ? view.lane.time : 0), x: view.speed };
      sv.text(this.clock, sv.t(view.playing ? "rail.replaying" : "rail.clock", words));
    }
  }

  class Round {
    constructor(view) {
      this.view = view;
      this.title = h("h4");
      this.chips = h("div", { class: "sv-chips", role: "group" });
      this.facts = h("div", { class: "sv-round-facts" });
      this.node = h("section", { class: "sv-round" }, this.title, this.chips, this.facts);
      const found = (event) => event.target.closest("[data-k]");
      this.chips.addEventListener("click", (event) => { const chip = found(event); if (chip) view.pin(this.it.index, Number(chip.dataset.k)); });
      this.chips.addEventListener("mouseover", (event) => { const chip = found(event); if (chip) view.hover({ it: this.it.index, tok: Number(chip.dataset.k) }); });
      this.chips.addEventListener("mouseleave", () => view.hover(null));
    }
    // waiting: a replay stands before the verdict, so the chips show no verdict yet
    draw(lane, it, detail, tok, waiting, focus) {
      this.it = it;
      const plain = lane.head && lane.head.method === "plain";
      const drafted = it.letters.length - 1, shape = sv.shape(it);
      const accepted = (it.letters.match(/a/g) || []).length;
      sv.text(this.title, plain ? sv.t("round.plain", { i: it.index + 1 }) : sv.t(shape.tree ? (shape.candidates ? "round.tree" : "round.probes") : drafted ? "round.title" : "round.none", { n: shape.probes.length, i: it.index + 1, d: shape.candidates, a: accepted, deep: Math.max(0, ...shape.depth.filter((none, k) => k < drafted && it.letters[k] !== "o")) }));
      this.chips.setAttribute("aria-label", this.title.textContent);
      this.chips.hidden = shape.tree; // the tree has its own picture
      sv.put(this.chips, [...(shape.tree ? "" : it.letters)].map((letter, k) => {
        const isLast = k === drafted;
        if (letter === "x" || (waiting && isLast)) return null;
        const shown = waiting ? "u" : letter;
        const kind = plain ? "plain" : sv.KINDS[shown];
        const node = detail && !isLast ? detail.nodes[k] : null;
        const word = sv.t("kind." + (waiting ? "drafted" : kind)), p = node ? sv.prob(node.p) : "", q = node ? (node.q === null ? "–" : sv.prob(node.q)) : "";
        const token = sv.bytes.single(it.names[k]);
        const label = sv.t(node && !waiting ? "chip.full" : "chip.light", { n: k + 1, kind: word, p, q, text: token.label });
        const chip = h("button", { type: "button", class: `sv-chip sv-chip-${kind}` + (k === tok ? " sv-current" : ""), "data-k": k, tabindex: k === tok ? "0" : "-1", "aria-pressed": String(k === tok), "aria-label": label, title: label },
            h("span", { class: "sv-chip-top" }, h("span", { class: "sv-glyph", "aria-hidden": "true" }, sv.GLYPHS[kind]), h("span", { class: `sv-tok sv-${kind}` }, sv.bytes.nodes(token.parts, true))),
            h("small", null, node && !waiting ? [h("span", null, "p ", p), " ", node.q !== null && h("span", null, "q ", q)] : isLast ? word : " "));
        return isLast && drafted > 0 ? h("span", { class: "sv-then" }, h("span", { class: "sv-arrow", "aria-hidden": "true" }, "→"), chip) : chip;
      }));
      if (focus) { const chip = this.chips.querySelector(`[data-k="${tok}"]`); if (chip) chip.focus({ preventScroll: true }); }
      const reason = it.reason && sv.reason(it.reason);
      const total = it.time || 1;
      const parts = sv.PHASES.map((name, k) => [name, it.seconds[k]]).filter(([, x]) => x > 0);
      sv.put(this.facts,
        !plain && h("p", { class: "sv-gain" }, sv.t(it.count === 1 ? "round.gain.one" : "round.gain", { n: it.count, passes: it.passes })),
        lane.head && !lane.head.lossless && h("p", { class: "sv-lossy" }, sv.t("round.lossy")),
        reason && h("p", { class: "sv-reason" }, sv.t("round.short"), " ", reason),
        it.letters.match(/[ARCBP]/) && h("p", { class: "sv-reason" }, sv.t("round.cut")),
        it.stop && h("p", { class: "sv-reason" }, sv.t("state.stop." + it.stop), it.message ? " – " + it.message : ""),
        h("div", { class: "sv-split", role: "img", "aria-label": parts.map(([name, x]) => `${sv.t("phase." + name)} ${sv.seconds(x)}`).join(", ") },
          parts.map(([name, x]) => h("i", { class: "sv-part sv-part-" + name, style: `flex-grow:${x / total}` }))),
        h("div", { class: "sv-splitkey" }, parts.map(([name, x]) => h("span", null, h("i", { class: "sv-dot sv-part-" + name }), sv.t("phase." + name) + " ", h("b", null, sv.seconds(x)))), h("span", null, sv.t("round.total") + " ", h("b", null, sv.seconds(it.time)))));
    }
  }
  sv.Rail = Rail;
  sv.Round = Round;
})();
