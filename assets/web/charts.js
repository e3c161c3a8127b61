// The pictures of one decision: the coin, and the laws it was tossed for. Widths in per cent, so text keeps its size.
(function () {
  "use strict";
  const sv = window.specviz;
  const { h } = sv;
  const MOST = 10; // tokens listed; the others join the rest

  const at = (x) => `left:${100 * Math.min(1, Math.max(0, x))}%`;
  const wide = (x, scale) => `width:${scale > 0 ? (100 * Math.min(x, scale)) / scale : 0}%`;

  // A bar from 0 to 1: below the threshold a draw accepts, above it rejects. u is the recorded needle, other a what-if.
  function coin({ threshold, u, other, name }) {
    const [shownU, shownT] = sv.pair(u, threshold);
    const needle = (x, kind, text) => h("div", { class: "sv-needle sv-needle-" + kind, style: at(x) }, h("span", { style: `transform:translateX(${-100 * x}%)` }, text));
    return h("div", {
      class: "sv-coin", role: "img", "data-u": u, "data-threshold": threshold,
      "aria-label": sv.t("coin.label", { u: shownU, name, t: shownT }),
    },
      needle(u, "real", `u = ${shownU}`),
      h("div", { class: "sv-coin-bar" },
        h("i", { class: "sv-coin-yes", style: `width:${100 * threshold}%` }, threshold > 0.16 && h("span", null, sv.t("coin.yes"))),
        h("i", { class: "sv-coin-no" }, threshold < 0.84 && h("span", null, sv.t("coin.no")))),
      h("div", { class: "sv-threshold", style: at(threshold) }, h("span", { style: `transform:translateX(${-100 * threshold}%)` }, `${name} = ${shownT}`)),
      other && needle(other.u, "other", `u′ = ${sv.prob(other.u)}`));
  }

  // Rows of the union of tokens: p solid, q hatched, what both share shaded; the residual beside it.
  // row: as in views/detail.py; keep: ids that must be listed; drawn: id to mark; model: show the target before settings.
  function laws(row, { keep, drawn, drafted, model, residual, residualGuess }) {
    const p = model ? row.model : row.p, q = row.q, r = residual;
    const order = row.tokens.map((token, k) => ({ token, k, weight: Math.max(row.p[k], q ? q[k] : 0) }));
    order.sort((a, b) => b.weight - a.weight || row.model[b.k] - row.model[a.k] || a.k - b.k);
    const must = (one) => keep.includes(one.token.id);
    let room = MOST - order.filter(must).length;
    const listed = order.filter((one) => must(one) || room-- > 0);
    const hidden = order.filter((one) => !listed.includes(one));
    const rest = (values, name) => (values ? Math.max(0, 1 - listed.reduce((sum, one) => sum + values[one.k], 0)) : null);
    const rests = { p: rest(p), q: rest(q), r: rest(r) };
    const scale = Math.max(0.02, ...listed.map((one) => Math.max(p[one.k], q ? q[one.k] : 0)), rests.p, rests.q || 0);
    const scaleR = r ? Math.max(0.02, ...listed.map((one) => r[one.k]), rests.r) : 1;
    const bars = (pv, qv, both = true) => h("div", { class: "sv-bars" },
      q && !model && both && h("i", { class: "sv-both", style: wide(Math.min(pv, qv), scale) }),
      h("i", { class: "sv-bar-p", style: wide(pv, scale) }), q && h("i", { class: "sv-bar-q", style: wide(qv, scale) }));
    const numbers = (pv, qv) => h("div", { class: "sv-pq" }, h("b", { title: "p" }, sv.prob(pv)), q && h("span", { title: "q" }, sv.prob(qv)));
    const spare = (rv, mark) => r && h("div", { class: "sv-spare" }, h("i", { class: "sv-bar-r" + (mark ? " sv-bar-drawn" : ""), style: wide(rv, scaleR) }), h("span", null, rv > 0 ? sv.prob(rv) : "0"));
    const lines = listed.map((one) => {
      const { token, k } = one, shown = sv.bytes.single(token.name);
      const mark = token.id === drawn, own = token.id === drafted;
      return h("li", { class: "sv-law" + (mark ? " sv-law-drawn" : "") + (own ? " sv-law-drafted" : ""), "data-id": token.id },
        h("div", { class: "sv-law-name", title: `${shown.label} · id ${token.id}` }, h("span", { class: "sv-law-text" }, sv.bytes.nodes(shown.parts, true)), h("small", null, (own ? sv.t("laws.drafted") : "") + (own && mark ? " " : "") + (mark ? sv.t("laws.drawn") : ""))),
        bars(p[k], q ? q[k] : null), numbers(p[k], q ? q[k] : null), spare(r ? r[k] : 0, mark));
    });
    // no shading here: the smaller of two sums is not the sum of the smaller ones
    lines.push(h("li", { class: "sv-law sv-law-rest" },
      h("div", { class: "sv-law-name", title: sv.t("laws.rest.help") }, h("span", { class: "sv-law-text" }, hidden.length ? sv.t("laws.restmore", { n: hidden.length }) : sv.t("laws.rest"))),
      bars(rests.p, rests.q, false), numbers(rests.p, rests.q), spare(rests.r || 0, drawn !== undefined && drawn !== null && !listed.some((one) => one.token.id === drawn))));
    return h("div", { class: "sv-laws" + (r ? " sv-laws-r" : "") },
      h("div", { class: "sv-law sv-law-head" },
        h("div", null), h("div", { class: "sv-key" }, h("span", null, h("i", { class: "sv-sample sv-sample-p" }), model ? sv.t("laws.model") : sv.t("laws.p")), q && h("span", null, h("i", { class: "sv-sample sv-sample-q" }), sv.t("laws.q")), q && !model && h("span", null, h("i", { class: "sv-sample sv-sample-both" }), sv.t("laws.both"))),
        h("div", { class: "sv-pq" }, h("b", null, "p"), q && h("span", null, "q")), r && h("div", { class: "sv-key" }, h("span", null, h("i", { class: "sv-sample sv-sample-r" }), residualGuess ? sv.t("laws.wouldbe") : sv.t("laws.residual")))),
      h("ul", { role: "list" }, lines));
  }

  // The residual of a rejection that was not recorded, from the recorded laws; null where it cannot be told.
  function residualOf(row, node) {
    if (row.residual) return row.residual;
    if (node.q === null) {
      const own = row.tokens.findIndex((token) => token.id === node.id);
      if (own < 0 || row.p[own] >= 1 - 1e-9) return null;
      return row.p.map((x, k) => (k === own ? 0 : x / (1 - row.p[own])));
    }
    if (!row.q || !sv.finite(row.overlap) || row.overlap >= 1 - 1e-9) return null;
    return row.p.map((x, k) => Math.min(1, Math.max(0, x - row.q[k]) / (1 - row.overlap)));
  }
  // A token drawn from a listed law with r in [0, 1); null: one that is not listed.
  function draw(tokens, values, r) {
    let sum = 0;
    for (let k = 0; k < values.length; k++) {
      sum += values[k];
      if (r < sum && values[k] > 0) return tokens[k];
    }
    return null;
  }
  sv.charts = { coin, laws, residualOf, draw };
})();
