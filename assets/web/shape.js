// The shape of a round's draft: who follows whom, where each node is drawn, which rows see which. From the light lines alone.
(function () {
  "use strict";
  const sv = window.specviz;

  // {tree, count, parents, depth, kids, order, row, rows, deepest, path, last, probes, candidates}. Node -1 is the root; node `count` is the
  // token that the target drew, which hangs where the accepted path ends (last: false where nothing was drawn).
  function make(it) {
    const count = it.letters.length - 1;
    const parents = it.parents || Array.from({ length: count }, (none, k) => k - 1);
    const shape = { tree: it.parents !== null, count, parents: [...parents], depth: [], path: [], last: it.letters[count] !== "x" };
    const kids = new Map([[-1, []]]);
    for (let k = 0; k < count; k++) {
      shape.depth.push(parents[k] < 0 ? 1 : shape.depth[parents[k]] + 1);
      kids.set(k, []);
      kids.get(parents[k]).push(k);
      if ("aA".includes(it.letters[k])) shape.path.push(k);
    }
    const end = shape.path.length ? shape.path[shape.path.length - 1] : -1;
    shape.parents.push(end);
    shape.depth.push(shape.path.length + 1);
    kids.set(count, []);
    const probe = (k) => it.letters[k] === "o";
    // candidates first, in the order in which they are tried; what was drawn after them; probes last
    for (const list of kids.values()) list.sort((a, b) => probe(a) - probe(b) || a - b);
    if (shape.last) kids.get(end).splice(kids.get(end).filter((k) => !probe(k)).length, 0, count);
    shape.probes = Array.from({ length: count }, (none, k) => k).filter(probe);
    shape.candidates = count - shape.probes.length;
    return Object.assign(shape, { kids, ...place(kids, () => true) });
  }
  // Rows of a drawing: a first child stands beside its parent, each further one begins a row of its own. shown(k): which nodes take part.
  function place(kids, shown) {
    const row = new Map(), order = [];
    let rows = 0, deepest = 0;
    const waiting = [[-1, 0, true]];
    while (waiting.length) {
      const [node, depth, first] = waiting.pop();
      if (!first) rows += 1;
      row.set(node, rows);
      if (node >= 0) order.push(node);
      deepest = Math.max(deepest, depth);
      const next = kids.get(node).filter(shown);
      for (let k = next.length - 1; k >= 0; k--) waiting.push([next[k], depth + 1, k === 0]);
    }
    return { row, order, rows: rows + 1, deepest };
  }
  // From a child of the root down to the node, itself included.
  function trail(shape, node) {
    const found = [];
    for (let k = node; k >= 0; k = shape.parents[k]) found.unshift(k);
    return found;
  }
  // Why a node was not tested: a key of the strings and, where one is to blame, the node.
  function untested(shape, it, node) {
    if (it.letters[node] === "o") return { key: "why.probe" };
    if (!shape.last) return { key: "why.ended" };
    const onPath = new Set(shape.path);
    const branch = trail(shape, node).find((k) => !onPath.has(k));
    if (branch === undefined) return { key: "why.none" };
    const taken = shape.path.find((k) => shape.parents[k] === shape.parents[branch]);
    if (branch !== node && "rR".includes(it.letters[branch])) return { key: shape.tree ? "why.parent" : "why.chain", node: branch };
    if (taken === undefined) return { key: "why.none" };
    return { key: branch === node ? "why.sibling" : "why.branch", node: taken };
  }
  sv.shape = (it) => (it.shape ||= make(it));
  Object.assign(sv.shape, { place, trail, untested });
})();
