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
        one && !isLast && ["p", sv.finite(one.p) ? sv.prob(one.p) : sv.t("nodata")],
        one && !isLast && ["q", one.q === null ? sv.t("card.fixed") : sv.prob(one.q)],
        ...(one && !isLast ? this.believed(detail.note, tok) : []),
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
    get it() { return this.lane.its[this.light.it]; }
    where() {
      const shape = sv.shape(this.it);
      return sv.t(!shape.tree ? "card.where" : this.tok < shape.count ? "card.where.tree" : "card.where.last", { i: this.light.it + 1, k: this.tok + 1, depth: shape.depth[this.tok] });
    }
    // What the draft itself thought of the token, where its method noted that.
    believed(note, tok) {
      const of = (list, key, shown) => Array.isArray(list) && sv.finite(list[tok]) && [sv.t(key), shown(list[tok])];
      const part = Array.isArray(note.part) && typeof note.part[tok] === "string" && [sv.t("card.part"), sv.part(note.part[tok])];
      return [part, of(note.rank, "card.draftrank", (n) => "#" + (n + 1)), of(note.own, "card.own", sv.prob), of(note.score, "card.score", sv.prob), of(note.chance, "card.chance", sv.prob)];
    }
    // Rejected siblings that were tried before this node, in their order.
    before(tok) {
      const { nodes } = this.detail;
      return nodes.map((node, k) => k).filter((k) => k < tok && nodes[k].parent === nodes[tok].parent && nodes[k].test);
    }
    names(nodes) {
      const said = nodes.slice(0, 4).map((k) => `“${sv.bytes.single(this.detail.nodes[k].name).label}”`).join(", ");
      return nodes.length > 4 ? sv.t("card.andmore", { words: said, n: nodes.length - 4 }) : said;
    }

    decision(one, isLast, kind) {
      const { detail } = this;
      if (isLast) return this.lastDraw(one, kind);
      if (!one.test) {
        const why = detail.rule === "typical" && kind !== "probe" ? { key: "why.typical" } : sv.shape.untested(sv.shape(this.it), this.it, this.tok);
        return h("div", { class: "sv-block" }, h("h4", null, sv.t("coin.title")), h("p", null, sv.t(why.key, { word: why.node === undefined ? "" : this.names([why.node]) })));
      }
      if (detail.rule === "typical") return this.typical(one);
      const { p, q, u, threshold, accepted } = one.test;
      const block = detail.rule === "block", zero = detail.temperature === 0;
      const fixed = one.q === null, residual = !block && sv.finite(one.p) && Math.abs(p - one.p) > 1e-9;
      const name = block ? "h" : fixed ? (residual ? "p′" : "p") : residual ? "min(1, p′/q)" : "min(1, p/q)";
      const [shownU, shownT] = sv.pair(u, threshold);
      const inPath = detail.path.includes(this.tok);
      const notes = [], siblings = this.before(this.tok);
      if (!block && fixed) notes.push(sv.t(residual ? "coin.fixed.later" : "coin.fixed", { t: shownT }));
      else if (!block) notes.push(sv.t("coin.formula", { r: residual ? "p′/q" : "p/q", p: sv.prob(p), q: sv.prob(q), t: shownT }));
      else {
        const own = q > 0 ? Math.min(1, p / q) : 0;
        notes.push(sv.t(sv.prob(own) === sv.prob(threshold) ? "coin.block.same" : "coin.block", { t: shownT, r: sv.prob(own) }));
      }
      if (block && fixed) notes.push(sv.t("coin.fixed.block"));
      if (!block && siblings.length) notes.push(sv.t(fixed ? "coin.sibling.fixed" : "coin.sibling", { words: this.names(siblings), before: sv.prob(one.p), after: sv.prob(p) }));
      if (zero) notes.push(sv.t(fixed ? "coin.zero.fixed" : "coin.zero"));
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
      const lost = detail.nodes.filter((node) => node.test && !node.test.accepted && node.parent === (detail.path.length ? detail.path[detail.path.length - 1] : -1));
      const fixed = lost.length > 0 && lost.every((node) => node.q === null);
      const exact = detail.rule === "block" ? "last.recovered.block" : fixed ? (lost.length > 1 ? "last.recovered.fixed" : "last.recovered.one") : lost.length > 1 ? "last.recovered.many" : "last.recovered";
      const own = one.fell_back ? "last.fellback" : detail.rule === "typical" ? "last.typical" : exact;
      const candidates = sv.shape(this.it).candidates;
      const key = recovered ? own : this.plain() ? "last.plain" : candidates ? (detail.is_chain ? "last.bonus" : "last.bonus.tree") : "last.nodraft";
      const values = row && (recovered ? row.residual || (one.fell_back ? row.p : null) : row.p);
      return h("div", { class: "sv-block" },
        h("h4", null, sv.t(recovered ? "last.title.recovered" : "last.title")),
        h("p", { class: "sv-sentence" }, sv.t(key, { r: sv.prob(one.draw), n: lost.length })),
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
      const exact = this.detail.rule === "token" && this.detail.is_chain && row;
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
      // in a block a later test decides too, whether this one passes or not
      if (this.detail.rule === "block") return sv.t(whatif.accepted ? "whatif.accepted.block" : "whatif.rejected.block", { u, t });
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
      const guess = this.whatif && this.whatif.known && !isReject && detail.rule === "token" && detail.is_chain ? sv.charts.residualOf(row, one) : null;
      const residual = isReject ? row.residual : guess;
      const siblings = detail.nodes.filter((node) => node.parent === row.after && node.letter !== "o");
      const drafts = siblings.map((node) => node.id), first = isLast || siblings[0] === one;
      const ends = detail.last.row !== null && detail.rows[detail.last.row] === row;
      const toggle = (model, key) => h("button", { type: "button", class: "sv-seg", "aria-pressed": String(this.model === model), "data-act": model ? "model" : "after", on: { click: () => { this.model = model; this.draw(); } } }, sv.t(key));
      return h("div", { class: "sv-block" },
        h("div", { class: "sv-block-head" }, title, h("div", { class: "sv-segs", role: "group" }, toggle(false, "laws.after"), toggle(true, "laws.model"))),
        sv.charts.laws(row, {
          keep: [one.id, ...drafts.slice(0, 6), ...(ends ? [detail.last.id] : []), ...(this.whatif && this.whatif.token ? [this.whatif.token.id] : [])],
          drawn: ends && (isLast || rejected) ? detail.last.id : null,
          drafted: isLast ? (drafts.length ? drafts[0] : null) : one.id, model: this.model, residual, residualGuess: Boolean(guess),
        }),
        !this.model && this.chances(row, siblings, first),
        isReject && siblings.length > 1 && detail.rule === "token" && h("p", { class: "sv-dim" }, sv.t("laws.residual.all", { n: siblings.length })),
        h("p", { class: "sv-dim" }, sv.t(this.model ? "laws.model.help" : row.q ? "laws.after.help" : "laws.after.help.p", { settings: sv.settings(this.detail.settings) })));
    }
    // What the laws say about acceptance here. Σ min(p, q) is its probability for a first sibling that was drawn from q, and for no other.
    chances(row, siblings, first) {
      const { rule } = this.detail, drawn = row.q && sv.finite(row.overlap);
      const dim = (key, values) => h("p", { class: "sv-dim" }, sv.t(key, values));
      if (drawn && rule === "block") return dim("laws.overlapblock", { n: sv.prob(row.overlap) });
      if (drawn && rule !== "token") return dim("laws.overlaptypical", { n: sv.prob(row.overlap) });
      const several = siblings.length > 1, sentence = (key, n, data) => h("p", { class: "sv-sentence", ...data }, sv.t(key, { n: sv.prob(n), count: siblings.length }));
      if (drawn && first) return sentence(several ? "laws.overlap.first" : "laws.overlap", row.overlap, { "data-overlap": row.overlap });
      if (drawn) return dim("laws.overlap.later", { n: sv.prob(row.overlap) });
      if (!siblings.length || rule !== "token" || siblings.some((node) => node.q !== null || !sv.finite(node.p))) return null;
      const sum = sv.finite(row.overlap) ? row.overlap : Math.min(1, [...new Map(siblings.map((node) => [node.id, node.p])).values()].reduce((a, b) => a + b, 0));
      return sentence(several ? "laws.any" : "laws.one", sum, { "data-any": sum });
    }
    // Typical acceptance: chance has no say, p must be above a bound that falls with the entropy of the law.
    typical(one) {
      const { p, accepted } = one.test;
      return h("div", { class: "sv-block" },
        h("h4", null, sv.t("typical.title")),
        h("p", { class: "sv-lossy" }, sv.t("typical.lossy")),
        h("p", { class: "sv-sentence", "data-accepted": accepted }, sv.t(accepted ? "typical.accepted" : "typical.rejected", { p: sv.prob(p) })),
        h("p", { class: "sv-dim" }, sv.t(this.detail.temperature === 0 ? "typical.zero" : "typical.help")));
    }
  }
  sv.Card = Card;
})();
