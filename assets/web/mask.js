// The attention mask of the target pass as a matrix: a row for each scored token, a column for each it could see.
(function () {
  "use strict";
  const sv = window.specviz;
  const { h, s } = sv;
  const NAMED = 13; // pixels: rows that are lower get no names
  const PAST = 2; // cells that the one column of the prefix is wide

  class Mask {
    constructor(act) {
      this.act = act;
      this.svg = s("svg", { class: "sv-mask-cells", role: "img" });
      this.frame = h("div", { class: "sv-mask-frame", tabindex: "0", role: "region" }, this.svg);
      this.said = h("p", { class: "sv-mask-said" });
      this.node = h("div", { class: "sv-mask" }, this.frame, this.said);
      this.svg.addEventListener("mousemove", (event) => this.over(event));
      this.svg.addEventListener("mouseleave", () => { this.cell = null; act.over(null); });
      this.svg.addEventListener("click", (event) => { this.over(event); if (this.cell && this.cell.row > 0) act.pin(this.cell.row - 1); });
    }
    // prefix: committed tokens before the root. Rows and columns are in the order in which the target got them.
    draw(it, { waiting, root, prefix, room }) {
      const shape = sv.shape(it), count = shape.count + 1;
      const fits = (left) => Math.floor((room - left - 4) / (count + PAST));
      const named = fits(104) >= NAMED;
      const side = named ? Math.min(17, fits(104)) : Math.max(4, Math.min(12, fits(26)));
      const left = named ? 104 : 26, top = named ? 34 : 24;
      const sees = [[0]];
      for (let k = 0; k < shape.count; k++) sees.push([...sees[shape.parents[k] + 1], k + 1]);
      Object.assign(this, { shape, it, sees, prefix, names: [root, ...it.names.slice(0, -1)], size: { side, left, top, count, named } });
      const x = (column) => left + PAST * side + column * side, y = (row) => top + row * side;
      const width = x(count) + 2, height = y(count) + 2;
      const onPath = new Set(waiting ? [] : shape.path), cell = { on: "", path: "", probe: "" };
      const kind = (row) => (row === 0 || onPath.has(row - 1) ? "path" : it.letters[row - 1] === "o" ? "probe" : "on");
      const square = (column, row, wide = side) => `M${x(column) + 1},${y(row) + 1}h${wide - 2}v${side - 2}h${2 - wide}z`;
      for (let row = 0; row < count; row++) {
        cell[kind(row)] += `M${left + 1},${y(row) + 1}h${PAST * side - 2}v${side - 2}h${2 - PAST * side}z`;
        for (const column of sees[row]) cell[kind(row)] += square(column, row);
      }
      let grid = "";
      for (let k = 0; k <= count; k++) grid += `M${left},${y(k)}H${x(count)}M${x(k)},${top}V${y(count)}`;
      grid += `M${left},${top}V${y(count)}`;
      const step = side >= 15 ? 1 : 10;
      const numbers = [];
      for (let k = step === 1 ? 1 : step; k < count; k += step) {
        numbers.push(s("text", { class: "sv-mask-number", x: x(k) + side / 2, y: top - 5, "text-anchor": "middle" }, k));
        if (!named) numbers.push(s("text", { class: "sv-mask-number", x: left - 5, y: y(k) + side / 2 + 3, "text-anchor": "end" }, k));
      }
      const names = named ? this.names.map((name, row) => s("text", { class: "sv-mask-name" + (onPath.has(row - 1) ? " sv-mask-on-path" : ""), x: left - 6, y: y(row) + side / 2 + 4, "text-anchor": "end" }, this.word(row, 11, onPath))) : [];
      this.bands = s("g", { class: "sv-mask-bands" });
      this.hot = s("path", { class: "sv-mask-hot", d: "" });
      sv.put(this.svg, s("path", { class: "sv-mask-grid", d: grid }), this.bands,
        Object.entries(cell).map(([name, d]) => d && s("path", { class: "sv-mask-" + name, d })), this.hot, numbers, names,
        s("text", { class: "sv-mask-number", x: left + (PAST * side) / 2, y: top - (named ? 18 : 14), "text-anchor": "middle" }, sv.t("mask.prefix")),
        s("text", { class: "sv-mask-number", x: x(0) + side / 2, y: top - 5, "text-anchor": "middle" }, named ? "0" : ""));
      for (const [name, value] of [["width", width], ["height", height], ["viewBox", `0 0 ${width} ${height}`]]) this.svg.setAttribute(name, value);
      this.svg.setAttribute("aria-label", sv.t("mask.label", { rows: count, columns: count, prefix }));
      this.frame.setAttribute("aria-label", sv.t("mask.title"));
      this.lit = undefined;
    }
    // "7 ✓ token" of a row; the root is row 0
    word(row, most, onPath) {
      const label = row === 0 && !this.names[0] ? sv.t("tree.root") : sv.bytes.single(this.names[row]).label.trim() || "␣";
      const text = [...label].length > most ? [...label].slice(0, most - 1).join("") + "…" : label;
      const letter = row ? this.it.letters[row - 1] : "";
      return `${onPath.has(row - 1) ? "✓ " : letter === "o" ? "○ " : ""}${text} ${row}`;
    }
    over(event) {
      if (!this.size) return;
      const box = this.svg.getBoundingClientRect(), { side, left, top, count } = this.size;
      const row = Math.floor((event.clientY - box.top - top) / side), past = event.clientX - box.left - left;
      if (row < 0 || row >= count) return;
      const column = past < 0 ? null : past < PAST * side ? -1 : Math.min(count - 1, Math.floor(past / side) - PAST);
      this.cell = { row, column };
      this.act.over(row - 1);
    }
    // Couples a node (null: none) with its row and its column; where the pointer is on a cell, says what that cell means.
    light(node) {
      if (!this.size) return;
      const { side, left, top, count } = this.size, row = node === null ? null : node + 1;
      const cell = this.cell && this.cell.row === row ? this.cell : null;
      if (row === null || row >= count) {
        sv.put(this.bands);
        this.hot.setAttribute("d", "");
        sv.text(this.said, sv.t("mask.hint"));
        return;
      }
      const x = (column) => left + PAST * side + column * side, y = (k) => top + k * side;
      const column = cell && cell.column !== null && cell.column >= 0 ? cell.column : row;
      sv.put(this.bands, s("rect", { class: "sv-mask-band", x: left, y: y(row), width: x(count) - left, height: side }), s("rect", { class: "sv-mask-band", x: x(column), y: top, width: side, height: y(count) - top }));
      this.hot.setAttribute("d", `M${left + 1},${y(row) + 1}h${PAST * side - 2}v${side - 2}h${2 - PAST * side}z` + this.sees[row].map((k) => `M${x(k) + 1},${y(row) + 1}h${side - 2}v${side - 2}h${2 - side}z`).join(""));
      sv.text(this.said, this.sentence(row, cell));
    }
    sentence(row, cell) {
      const word = (k) => (k === 0 ? sv.t("tree.root") : `“${sv.bytes.single(this.names[k]).label}”`);
      if (cell && cell.column !== null && cell.column !== row) {
        if (cell.column < 0) return sv.t("mask.past", { row: word(row), n: this.prefix });
        return sv.t(this.sees[row].includes(cell.column) ? "mask.yes" : "mask.no", { row: word(row), column: word(cell.column) });
      }
      const before = this.sees[row].filter((k) => k !== row && k !== 0).map(word);
      const below = this.sees.filter((list, k) => k !== row && list.includes(row)).length;
      return sv.t(before.length ? "mask.row" : row ? "mask.first" : "mask.root", { row: word(row), n: this.prefix, words: before.join(", "), below });
    }
  }
  sv.Mask = Mask;
})();
