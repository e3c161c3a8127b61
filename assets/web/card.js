// The card of one token: what it is, the coin that decided about it, the laws behind the coin, and a what-if.
(function () {
  "use strict";
  const sv = window.specviz;
  const { h } = sv;

  class Card {
    constructor() {
      this.node = h("section", { class: "sv-card" });
      this.lawsNode = h("section", { class: "sv-card" });
      this.model = false;
      this.clear();
    }
    clear() { this.whatif = null; this.tally = { n: 0, yes: 0 }; }

    // light: {letter, name, number}; detail: as in views/detail.py, or null while it is not there; preview: only hovered.
    show(light, detail, tok, preview, lane) {
      const key = [lane && lane.key, detail && detail.index, tok, light && light.name].join();
      if (key !== this.key) this.clear();
      Object.assign(this, { key, light, detail, tok, preview, lane });
      this.draw();
    }
    draw() {
      const { light, detail, tok } = this;
      for (const node of [this.node, this.lawsNode]) node.classList.toggle("sv-preview", Boolean(this.preview));
      const kind = sv.KINDS[light.letter] || "untested";
      const shown = sv.bytes.single(light.name);
      const one = detail && (tok < detail.nodes.length ? detail.nodes[tok] : detail.last);
      const isLast = detail && tok >= detail.nodes.length;
      const facts = [
        one && ["id", String(one.id)],
        [sv.t("card.bytes"), shown.bytes.length ? sv.bytes.hex(shown.bytes) : "–"],
        one && !isLast && [sv.t("card.rank"), one.rank >= 0 ? "#" + (one.rank + 1) : sv.t("nodata")],
        one && !isLast && ["p", sv.prob(one.p)],
        one && !isLast && ["q", one.q === null ? "1 " + sv.t("card.fixed") : sv.prob(one.q)],
      ].filter(Boolean);
      sv.put(this.node,
        h("header", { class: "sv-card-head" },
          h("span", { class: `sv-tok sv-big-tok sv-${this.plain() ? "plain" : kind}` }, sv.bytes.nodes(shown.parts, true)),
          h("div", null, h("div", { class: "sv-card-kind sv-ink-" + kind }, sv.t(this.plain() ? "kind.plain" : "kind." + kind) + (kind === "cut" ? " · " + sv.t("kind.cut.help") : "")), h("div", { class: "sv-dim" }, this.where(), this.preview ? " · " + sv.t("card.preview") : ""))),
        h("dl", { class: "sv-facts" }, facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))),
        detail ? this.decision(one, isLast, kind) : h("p", { class: "sv-dim" }, sv.t(this.error ? "error." + this.error : "card.loading")));
      this.drawLaws(one, isLast);
    }
    drawLaws(one, isLast) {
      if (this.detail) sv.put(this.lawsNode, this.laws(one, isLast));
      else sv.put(this.lawsNode, h("h4", null, sv.t("laws.title")), h("p", { class: "sv-dim" }, sv.t(this.error ? "nodata" : "card.loading")));
    }
    plain() { return this.lane && this.lane.head && this.lane.head.method === "plain"; }
    where() { return sv.t("card.where", { i: this.light.it + 1, k: this.tok + 1 }); }

    decision(one, isLast, kind) {
      const { detail } = this;
      if (isLast) return this.lastDraw(one, kind);
      if (!one.test) return h("div", { class: "sv-block" }, h("h4", null, sv.t("coin.title")), h("p", null, sv.t(kind === "probe" ? "coin.probe" : "coin.untested")));
      const { p, q, u, threshold, accepted } = one.test;
      const block = detail.rule === "block", zero = detail.temperature === 0;
      const name = block ? "h" : "min(1, p/q)";
      const [shownU, shownT] = sv.pair(u, threshold);
      const inPath = detail.path.includes(this.tok);
      const notes = [];
      if (!block) notes.push(sv.t("coin.formula", { p: sv.prob(p), q: sv.prob(q), t: shownT }));
      else notes.push(sv.t("coin.block", { t: shownT, r: q > 0 ? sv.prob(Math.min(1, p / q)) : "0" }));
      if (one.q === null) notes.push(sv.t("coin.fixed"));
      if (zero) notes.push(sv.t("coin.zero"));
      if (!block && Math.abs(p - one.p) > 1e-9) notes.push(sv.t("coin.sibling"));
      if (block && inPath && !accepted) notes.push(sv.t("coin.blockrescued"));
      if (block && !inPath && accepted) notes.push(sv.t("coin.blockmoot"));
      return h("div", { class: "sv-block" },
        h("h4", null, sv.t("coin.title")),
        sv.charts.coin({ threshold, u, name, other: this.whatif }),
        h("p", { class: "sv-sentence", "data-accepted": accepted }, sv.t(accepted ? "coin.accepted" : "coin.rejected", { u: shownU, t: shownT })),
        notes.map((text) => h("p", { class: "sv-dim" }, text)),
        this.redraw("whatif.button", () => this.tossAgain(one)));
    }
    lastDraw(one, kind) {
      const { detail } = this, row = this.row(one);
      const recovered = kind === "recovered" || (kind === "cut" && this.light.letter === "C");
      const own = one.fell_back ? "last.fellback" : detail.rule === "block" ? "last.recovered.block" : "last.recovered";
      const key = recovered ? own : this.plain() ? "last.plain" : detail.nodes.length ? "last.bonus" : "last.nodraft";
      const values = row && (recovered ? row.residual || (one.fell_back ? row.p : null) : row.p);
      return h("div", { class: "sv-block" },
        h("h4", null, sv.t(recovered ? "last.title.recovered" : "last.title")),
        h("p", { class: "sv-sentence" }, sv.t(key, { r: sv.prob(one.draw) })),
        detail.temperature === 0 && h("p", { class: "sv-dim" }, sv.t("last.zero")),
        values && this.redraw("whatif.button.last", () => {
          const token = sv.charts.draw(row.tokens, values, Math.random());
          this.whatif = { last: true, token };
          this.tally.n += 1;
          if (token && token.id === one.id) this.tally.yes += 1;
        }));
    }
    tossAgain(one) {
      const u = Math.random(), accepted = u < one.test.threshold;
      const row = this.row(one);
      const exact = this.detail.rule !== "block" && this.detail.is_chain && row;
      const values = accepted || !exact ? null : sv.charts.residualOf(row, one);
      this.whatif = { u, accepted, token: values ? sv.charts.draw(row.tokens, values, Math.random()) : null, known: Boolean(values) };
      this.tally.n += 1;
      if (accepted) this.tally.yes += 1;
    }
    redraw(label, run) {
      const { whatif, tally } = this;
      return h("div", { class: "sv-whatif" + (whatif ? " sv-on" : "") },
        h("button", { type: "button", class: "sv-button", "data-act": "redraw", on: { click: (event) => {
          run();
          this.draw();
          this.node.querySelector("[data-act=redraw]").focus({ preventScroll: true });
          event.stopPropagation();
        } } }, "⟳ ", sv.t(label)),
        whatif && h("div", { class: "sv-whatif-text", role: "status" }, h("b", null, sv.t("whatif.tag")), " ", this.whatifText(),
          h("span", { class: "sv-dim" }, " ", sv.t(whatif.last ? "whatif.tally.last" : "whatif.tally", { n: tally.n, k: tally.yes }), " ", sv.t("whatif.record"))));
    }
    whatifText() {
      const { whatif } = this;
      const word = (token) => (token ? h("span", { class: "sv-tok sv-recovered" }, sv.bytes.nodes(sv.bytes.single(token.name).parts, true)) : sv.t("whatif.unlisted"));
      if (whatif.last) return [sv.t("whatif.last"), " ", word(whatif.token)];
      const [u, t] = sv.pair(whatif.u, this.detail.nodes[this.tok].test.threshold);
      if (whatif.accepted) return sv.t("whatif.accepted", { u, t });
      return [sv.t("whatif.rejected", { u, t }), " ", whatif.known ? [sv.t("whatif.residual"), " ", word(whatif.token)] : sv.t("whatif.unknown")];
    }
    row(one) { return one.row === null ? null : this.detail.rows[one.row]; }

    laws(one, isLast) {
      const { detail } = this, row = this.row(one);
      const title = h("h4", null, sv.t(this.plain() || (row && !row.q) ? "laws.title.p" : "laws.title"));
      if (!detail.capture) return h("div", { class: "sv-block" }, title, h("p", { class: "sv-dim" }, sv.t("laws.nocapture")));
      if (!row || !row.p.every(sv.finite)) return h("div", { class: "sv-block" }, title, h("p", { class: "sv-dim" }, sv.t("nodata")));
      const rejected = !isLast && one.test && !detail.path.includes(this.tok);
      const isReject = row.residual !== null && (isLast || rejected);
      const guess = this.whatif && this.whatif.known && !isReject && detail.rule !== "block" && detail.is_chain ? sv.charts.residualOf(row, one) : null;
      const residual = isReject ? row.residual : guess;
      const drafts = detail.nodes.filter((node) => node.parent === row.after).map((node) => node.id);
      const ends = detail.last.row !== null && detail.rows[detail.last.row] === row;
      const toggle = (model, key) => h("button", { type: "button", class: "sv-seg", "aria-pressed": String(this.model === model), "data-act": model ? "model" : "after", on: { click: () => { this.model = model; this.draw(); } } }, sv.t(key));
      return h("div", { class: "sv-block" },
        h("div", { class: "sv-block-head" }, title, h("div", { class: "sv-segs", role: "group" }, toggle(false, "laws.after"), toggle(true, "laws.model"))),
        sv.charts.laws(row, {
          keep: [one.id, ...drafts, ...(ends ? [detail.last.id] : []), ...(this.whatif && this.whatif.token ? [this.whatif.token.id] : [])],
          drawn: ends && (isLast || rejected) ? detail.last.id : null,
          drafted: isLast ? (drafts.length ? drafts[0] : null) : one.id, model: this.model, residual, residualGuess: Boolean(guess),
        }),
        !this.model && row.q && sv.finite(row.overlap) && detail.rule !== "block" && h("p", { class: "sv-sentence", "data-overlap": row.overlap }, sv.t("laws.overlap", { n: sv.prob(row.overlap) })),
        !this.model && row.q && sv.finite(row.overlap) && detail.rule === "block" && h("p", { class: "sv-dim" }, sv.t("laws.overlapblock", { n: sv.prob(row.overlap) })),
        !row.q && !this.plain() && drafts.length > 0 && h("p", { class: "sv-dim" }, sv.t("coin.fixed")),
        h("p", { class: "sv-dim" }, sv.t(this.model ? "laws.model.help" : row.q ? "laws.after.help" : "laws.after.help.p", { settings: sv.settings(this.detail.settings) })));
    }
  }
  sv.Card = Card;
})();
