// The page of `kubectl dranet ui`. It draws what the program decided, and decides nothing itself. Names are
// written by tenants: they become text nodes or attributes, never markup.
'use strict';

const data = JSON.parse(document.getElementById('data').textContent);

/** @type {Map<string, object>} Nodes by name. */
const nodes = new Map();
const layouts = data.layouts || {};
let waiting = [];
let room = [];

/** The states of devices, as letters in `devices` of a node; the order of the legend. */
const STATES = [
  ['f', 'free'],
  ['p', 'partly held'],
  ['h', 'held'],
  ['a', 'held, far away'],
  ['s', 'stranded'],
  ['d', 'down'],
  ['t', 'tainted'],
];
const MEANING = {
  f: 'A new pod can get it',
  p: 'Claims hold parts of it and leave something for others',
  h: 'A pod has it',
  a: 'A pod has it whose GPUs and NICs are farther apart than plans allow',
  s: 'A free GPU near which no NIC is left',
  d: 'The port of the NIC is down, or its PCIe link degraded',
  t: 'A taint keeps new pods away',
};

/** The sizes of a device, in pixels. */
const SIZES = [5, 7, 10, 15];
const PER_ROW = 8;
const STRIP = 1024;

const view = {
  size: null, // index into SIZES
  selected: null, // name of a node
  query: '',
  state: null, // letter of a state
  fits: null, // Set of names: where a pod of "what if" fits
};

const at = (id) => document.getElementById(id);

/** An element with properties, and children that are elements or text. */
function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key in element) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const count = (number, noun) => `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`;
const compare = new Intl.Collator('en', { numeric: true }).compare;

// ---------------------------------------------------------------------------------------------------
// The data

function merge(update) {
  Object.assign(layouts, update.layouts || {});
  const changed = [];
  let isMoved = false;
  for (const node of update.nodes || []) {
    const before = nodes.get(node.name);
    node.counts = countsOf(node);
    isMoved ||= !before || place(before) !== place(node) || before.layout !== node.layout;
    nodes.set(node.name, node);
    changed.push(node.name);
  }
  for (const name of update.gone || []) isMoved = nodes.delete(name) || isMoved;
  if (update.waiting) waiting = update.waiting;
  if (update.room) room = update.room;
  return { changed, isMoved };
}

const place = (node) => JSON.stringify([node.fabric, groupOf(node)]);
const groupOf = (node) => [node.block && `block ${node.block}`, node.domain && `NVLink ${node.domain}`].filter(Boolean).join(' · ');
const gpusOf = (node) => layouts[node.layout].gpus;
const isFree = (letter) => letter === 'f' || letter === 's';

/** How many devices are in each state: GPUs and NICs. */
function countsOf(node) {
  const counts = { gpus: {}, nics: {} };
  const gpus = gpusOf(node);
  for (let index = 0; index < node.devices.length; index++) {
    const of = index < gpus ? counts.gpus : counts.nics;
    of[node.devices[index]] = (of[node.devices[index]] || 0) + 1;
  }
  return counts;
}

function totals(some) {
  const sum = { nodes: 0, closed: 0, gpus: 0, gpusFree: 0, nics: 0, nicsFree: 0, stranded: 0, broken: 0, far: 0 };
  for (const node of some) {
    const { gpus, nics } = node.counts;
    const all = (of) => Object.values(of).reduce((one, other) => one + other, 0);
    sum.nodes++;
    sum.gpus += all(gpus);
    sum.nics += all(nics);
    sum.far += node.pods ? node.pods.filter((pod) => pod.far).length : 0;
    if (node.closed) {
      sum.closed++;
      continue;
    }
    sum.gpusFree += (gpus.f || 0) + (gpus.s || 0);
    sum.nicsFree += nics.f || 0;
    sum.stranded += gpus.s || 0;
    sum.broken += (gpus.d || 0) + (gpus.t || 0) + (nics.d || 0) + (nics.t || 0);
  }
  return sum;
}

// ---------------------------------------------------------------------------------------------------
// Drawing devices

let colours = {};

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ['page', 'ink', 'soft', 'line', 'accent', 'tile', 'tile-line', 'closed', 'free', 'free-line', 'held', 'far',
    'stranded', 'stranded-line', 'down', 'down-line', 'tainted', 'tainted-line', 'mark', 'fits']) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
}

function outline(ctx, x, y, width, height, isRound) {
  ctx.beginPath();
  if (isRound) ctx.roundRect(x, y, width, height, height / 2);
  else ctx.rect(x, y, width, height);
}

/** One device. A state has a shape beside its colour; places of late NICs are round. */
function drawDevice(ctx, letter, x, y, width, height, isRound) {
  const box = (fill, line) => {
    if (fill) {
      outline(ctx, x, y, width, height, isRound);
      ctx.fillStyle = fill;
      ctx.fill();
    }
    if (line) {
      outline(ctx, x + 0.5, y + 0.5, width - 1, height - 1, isRound);
      ctx.strokeStyle = line;
      ctx.lineWidth = 1;
      ctx.stroke();
    }
  };
  const stroke = (points, colour, lineWidth) => {
    ctx.beginPath();
    for (const [x1, y1, x2, y2] of points) {
      ctx.moveTo(x1, y1);
      ctx.lineTo(x2, y2);
    }
    ctx.strokeStyle = colour;
    ctx.lineWidth = lineWidth;
    ctx.stroke();
  };
  const thick = Math.max(1, height / 7);
  const [right, bottom] = [x + width, y + height];
  switch (letter) {
    case 'f':
      return box(colours.free, colours['free-line']);
    case 'h':
      return box(colours.held, null);
    case 'p':
      box(colours.free, colours['free-line']);
      ctx.fillStyle = colours.held;
      return ctx.fillRect(x, y + height / 2, width, height / 2);
    case 'a':
      box(colours.far, null);
      return stroke([[x, bottom, right, y]], colours.mark, Math.max(1.2, thick));
    case 's': {
      box(colours.stranded, colours['stranded-line']);
      const dot = Math.max(2, Math.round(height / 3));
      ctx.fillStyle = colours['stranded-line'];
      return ctx.fillRect(x + (width - dot) / 2, y + (height - dot) / 2, dot, dot);
    }
    case 'd': {
      const in_ = height > 8 ? 2.5 : 0.5;
      box(colours.down, height > 6 ? colours['down-line'] : null);
      return stroke([[x + in_, y + in_, right - in_, bottom - in_], [x + in_, bottom - in_, right - in_, y + in_]], colours['down-line'], Math.max(1.2, thick));
    }
    case 't':
      box(colours.tainted, colours['tainted-line']);
      return stroke([[x + 1, y + height / 2, right - 1, y + height / 2]], colours['tainted-line'], Math.max(1.4, thick));
  }
}

/** The measures of a tile with this many GPUs and NICs. */
function measure(gpus, nics, size) {
  const gap = size > 8 ? 2 : 1;
  const padding = size > 8 ? 5 : 3;
  const nic = Math.max(4, Math.round(size * 0.72));
  const columns = Math.min(PER_ROW, Math.max(gpus, nics, 1));
  const [gpuRows, nicRows] = [Math.ceil(gpus / PER_ROW), Math.ceil(nics / PER_ROW)];
  const title = size >= SIZES[3] ? 15 : 0;
  const between = gpuRows && nicRows ? gap : 0;
  return {
    gap, padding, nic, title, size,
    width: Math.max(columns * (size + gap) - gap + 2 * padding, title ? 118 : 0),
    height: title + gpuRows * (size + gap) + between + nicRows * (nic + gap) - gap + 2 * padding,
    nicsFrom: title + padding + gpuRows * (size + gap) + between,
  };
}

function isDimmed(node) {
  if (view.fits) return !view.fits.has(node.name);
  if (view.state) return !node.devices.includes(view.state);
  return view.query !== '' && !matches(node);
}

function matches(node) {
  const words = view.query;
  return node.name.toLowerCase().includes(words) || (node.machine || '').toLowerCase().includes(words) ||
    (node.pods || []).some((pod) => pod.name.toLowerCase().includes(words));
}

function drawTile(ctx, tile, top) {
  const { node, measures: m } = tile;
  const [x, y] = [tile.x, tile.y - top];
  ctx.clearRect(x - 2, y - 2, m.width + 4, m.height + 4);
  ctx.globalAlpha = isDimmed(node) ? 0.18 : 1;
  ctx.fillStyle = colours.tile;
  ctx.fillRect(x, y, m.width, m.height);
  if (node.closed) {
    ctx.save();
    ctx.beginPath();
    ctx.rect(x, y, m.width, m.height);
    ctx.clip();
    ctx.beginPath();
    for (let from = -m.height; from < m.width; from += 6) {
      ctx.moveTo(x + from, y + m.height);
      ctx.lineTo(x + from + m.height, y);
    }
    ctx.strokeStyle = colours.closed;
    ctx.lineWidth = 1;
    ctx.stroke();
    ctx.restore();
  }
  const isFit = view.fits && view.fits.has(node.name);
  const isSelected = view.selected === node.name;
  ctx.strokeStyle = isSelected ? colours.accent : isFit ? colours.fits : colours['tile-line'];
  ctx.lineWidth = isSelected || isFit ? 2 : 1;
  ctx.strokeRect(x + 0.5, y + 0.5, m.width - 1, m.height - 1);
  if (m.title) {
    ctx.fillStyle = colours.ink;
    ctx.font = '11px system-ui, Arial, sans-serif';
    ctx.fillText(fitting(ctx, node.name, m.width - 2 * m.padding, true), x + m.padding, y + 14);
  }
  const gpus = gpusOf(node);
  for (let index = 0; index < node.devices.length; index++) {
    const isNic = index >= gpus;
    const own = isNic ? index - gpus : index;
    const [row, column] = [Math.floor(own / PER_ROW), own % PER_ROW];
    const height = isNic ? m.nic : m.size;
    const down = (isNic ? m.nicsFrom : m.title + m.padding) + row * (height + m.gap);
    drawDevice(ctx, node.devices[index], x + m.padding + column * (m.size + m.gap), y + down, m.size, height, isNic && node.late);
  }
  ctx.globalAlpha = 1;
}

/** As much of a text as there is room for. The end of a node's name says more than its beginning. */
function fitting(ctx, name, width, isEndKept) {
  if (ctx.measureText(name).width <= width) return name;
  let text = name;
  while (text.length > 1 && ctx.measureText('…' + text).width > width) text = isEndKept ? text.slice(1) : text.slice(0, -1);
  return isEndKept ? '…' + text : text + '…';
}

// ---------------------------------------------------------------------------------------------------
// The map: a section for each fabric, in strips that are drawn while they can be seen

let fabrics = [];
const tiles = new Map();

const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    target.strip.isSeen = isIntersecting;
    if (isIntersecting) drawStrip(target.strip);
    else target.width = 0;
  }
}, { root: null, rootMargin: '800px' });

function sizeFor(number) {
  return number > 3000 ? 0 : number > 600 ? 1 : number > 100 ? 2 : 3;
}

function layOut() {
  const map = at('map');
  observer.disconnect();
  tiles.clear();
  fabrics = [];
  const byFabric = new Map();
  for (const node of nodes.values()) {
    const key = node.fabric || '';
    if (!byFabric.has(key)) byFabric.set(key, []);
    byFabric.get(key).push(node);
  }
  const size = SIZES[view.size === null ? sizeFor(nodes.size) : view.size];
  const width = Math.max(260, map.clientWidth - 44);
  const sections = [...byFabric.keys()].sort((one, other) => (one === '') - (other === '') || compare(one, other))
    .map((name) => section(name, byFabric.get(name), width, size));
  if (sections.length === 0) sections.push(el('p', { className: 'empty' }, 'No node has GPUs or NICs of a DRA driver.'));
  map.replaceChildren(...sections);
}

function section(name, own, width, size) {
  const heading = el('h2', {}, name ? `Fabric ${name}` : 'No fabric', el('small'));
  const fabric = { name, own, width, size, heading, strips: [], height: 0, labels: [], section: null };
  placeGroups(fabric);
  fabric.section = el('section', { className: 'fabric' }, heading);
  for (let top = 0; top < fabric.height; top += STRIP) {
    const height = Math.min(STRIP, fabric.height - top);
    const canvas = el('canvas');
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const strip = { fabric, canvas, top, height, isSeen: false, tiles: [] };
    canvas.strip = strip;
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', `Nodes of ${name ? `fabric ${name}` : 'no fabric'}`);
    strip.tiles = fabric.tiles.filter((tile) => tile.y < top + height && tile.y + tile.measures.height > top);
    strip.tiles.forEach((tile) => tile.strips.push(strip));
    fabric.strips.push(strip);
    fabric.section.append(canvas);
    observer.observe(canvas);
  }
  fabrics.push(fabric);
  headline(fabric);
  return fabric.section;
}

/** Groups stand side by side, as racks do. */
function placeGroups(fabric) {
  const groups = new Map();
  for (const node of fabric.own) {
    const key = groupOf(node);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(node);
  }
  fabric.tiles = [];
  let [x, y, shelf] = [2, 2, 0];
  for (const key of [...groups.keys()].sort(compare)) {
    const own = groups.get(key).sort((one, other) => compare(one.name, other.name));
    const most = own.reduce(([gpus, nics], node) => [Math.max(gpus, gpusOf(node)), Math.max(nics, node.devices.length - gpusOf(node))], [0, 0]);
    const m = measure(most[0], most[1], fabric.size);
    const step = { x: m.width + (m.title ? 8 : 4), y: m.height + (m.title ? 8 : 4) };
    const fitting_ = Math.max(1, Math.floor((fabric.width - 4) / step.x));
    const columns = key === '' ? fitting_ : Math.min(fitting_, Math.max(2, Math.ceil(Math.sqrt(own.length * 1.4))));
    const rows = Math.ceil(own.length / columns);
    const label = key ? 16 : 0;
    const wide = Math.max(Math.min(columns, own.length) * step.x, key ? 7 * Math.min(key.length, 24) : 0);
    if (x > 2 && x + wide > fabric.width) [x, y, shelf] = [2, y + shelf + 10, 0];
    if (key) fabric.labels.push({ text: key, x, y: y + 11, width: wide - 4 });
    own.forEach((node, index) => {
      const tile = { node, fabric, measures: m, x: x + (index % columns) * step.x, y: y + label + Math.floor(index / columns) * step.y, strips: [] };
      fabric.tiles.push(tile);
      tiles.set(node.name, tile);
    });
    shelf = Math.max(shelf, label + rows * step.y);
    x += wide + 12;
  }
  fabric.height = y + shelf + 4;
}

function headline(fabric) {
  const sum = totals(fabric.tiles.map((tile) => tile.node));
  const parts = [count(sum.nodes, 'node')];
  if (sum.closed) parts.push(`${sum.closed} closed`);
  parts.push(`${sum.gpusFree.toLocaleString('en')} of ${count(sum.gpus, 'GPU')} free`);
  parts.push(`${sum.nicsFree.toLocaleString('en')} of ${count(sum.nics, 'NIC')} free`);
  if (sum.stranded) parts.push(`${sum.stranded} stranded`);
  if (sum.broken) parts.push(`${sum.broken} down or tainted`);
  fabric.heading.querySelector('small').textContent = parts.join('  ·  ');
}

function drawStrip(strip) {
  const { canvas, fabric, top, height } = strip;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(fabric.width * ratio);
  canvas.height = Math.round(height * ratio);
  const ctx = canvas.getContext('2d');
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.font = '11px system-ui, Arial, sans-serif';
  ctx.fillStyle = colours.soft;
  for (const label of fabric.labels) {
    if (label.y > top - 16 && label.y < top + height + 16) {
      ctx.fillText(fitting(ctx, label.text, label.width, false), label.x, label.y - top);
    }
  }
  for (const tile of strip.tiles) drawTile(ctx, tile, top);
}

function drawNode(name) {
  const tile = tiles.get(name);
  if (!tile) return;
  tile.node = nodes.get(name) || tile.node;
  for (const strip of tile.strips) {
    if (!strip.isSeen) continue;
    drawTile(strip.canvas.getContext('2d'), tile, strip.top);
  }
}

function drawAll() {
  for (const fabric of fabrics) {
    for (const strip of fabric.strips) if (strip.isSeen) drawStrip(strip);
  }
}

/** The tile at a point of a canvas. */
function tileAt(event) {
  const strip = event.target.strip;
  if (!strip) return null;
  const box = event.target.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top + strip.top];
  return strip.tiles.find((tile) => x >= tile.x && y >= tile.y && x < tile.x + tile.measures.width && y < tile.y + tile.measures.height) || null;
}

/** The number of the device of a tile at a point. */
function deviceAt(tile, event) {
  const box = event.target.getBoundingClientRect();
  const m = tile.measures;
  const x = event.clientX - box.left - tile.x - m.padding;
  const y = event.clientY - box.top + event.target.strip.top - tile.y;
  const gpus = gpusOf(tile.node);
  const column = Math.floor(x / (m.size + m.gap));
  if (column < 0 || column >= PER_ROW) return null;
  const isNic = y >= m.nicsFrom;
  const row = Math.floor((y - (isNic ? m.nicsFrom : m.title + m.padding)) / ((isNic ? m.nic : m.size) + m.gap));
  const index = row * PER_ROW + column + (isNic ? gpus : 0);
  const end = isNic ? tile.node.devices.length : gpus;
  return row >= 0 && index < end ? index : null;
}

// ---------------------------------------------------------------------------------------------------
// Numbers and legend

function showNumbers() {
  const sum = totals(nodes.values());
  const cell = (value, of, label, isAlarm) => el('div', { className: isAlarm ? 'alarm' : '' }, el('dt', {}, label), el('dd', {}, value.toLocaleString('en'), of ? el('small', {}, of) : ''));
  const cells = [
    cell(sum.nodes, sum.closed ? `  ${sum.closed} closed` : '', 'nodes'),
    cell(sum.gpusFree, ` / ${sum.gpus.toLocaleString('en')}`, 'GPUs free'),
    cell(sum.nicsFree, ` / ${sum.nics.toLocaleString('en')}`, 'NICs free'),
    ...roomCells(),
    cell(sum.stranded, '', 'GPUs stranded', sum.stranded > 0),
    cell(sum.broken, '', 'down or tainted', sum.broken > 0),
    cell(waiting.reduce((all, one) => all + one.pods.length, 0), '', 'pods wait'),
  ];
  at('numbers').replaceChildren(...cells);
}

/** The room for aligned pods, for each driver of GPUs: `412 · 180 · 60 · 21`. */
function roomCells() {
  const byDriver = new Map();
  for (const one of room) {
    const [shape, driver = ''] = one.shape.split(' of ');
    if (!byDriver.has(driver)) byDriver.set(driver, []);
    byDriver.get(driver).push({ ...one, size: shape.replace('gpu:', ':').replace('nic', '') });
  }
  return [...byDriver].map(([driver, all]) => el('div', { title: all.map((one) => `${one.shape}: ${one.now} fit now, ${one.empty} with nothing in use`).join('\n') },
    el('dt', {}, `more aligned pods of ${all.map((one) => one.size).join(' · ')}${driver && ` (${driver})`}`),
    el('dd', {}, all.map((one) => one.now.toLocaleString('en')).join(' · '))));
}

/** A device of the legend and of lists, drawn as on the map. */
function sample(letter, isNic, isLate) {
  const ratio = window.devicePixelRatio || 1;
  const canvas = el('canvas', { width: 13 * ratio, height: 13 * ratio });
  canvas.style.width = canvas.style.height = '13px';
  const ctx = canvas.getContext('2d');
  ctx.scale(ratio, ratio);
  drawDevice(ctx, letter, 0.5, isNic ? 2 : 0.5, 12, isNic ? 9 : 12, isLate);
  return canvas;
}

function showLegend() {
  const entries = STATES.map(([letter, word]) => el('li', {}, el('button', {
    type: 'button', title: `${MEANING[letter]}. Press to show the nodes with such devices`, 'aria-pressed': String(view.state === letter),
    onclick: () => highlight({ state: view.state === letter ? null : letter }),
  }, sample(letter), word)));
  const nic = el('li', {}, el('button', { type: 'button', disabled: true }, sample('f', true), 'NIC'));
  const late = [...nodes.values()].some((node) => node.late)
    ? el('li', {}, el('button', { type: 'button', disabled: true }, sample('f', true, true), 'NIC chosen when the pod starts')) : null;
  at('legend').replaceChildren(...[...entries, nic, late].filter(Boolean));
}

/** Shows some nodes and dims the others. */
function highlight({ query = '', state = null, fits = null }) {
  Object.assign(view, { query: query.toLowerCase(), state, fits });
  drawAll();
  showLegend();
}

function showState(text, isLost) {
  at('state').textContent = text;
  at('state').className = isLost ? 'lost' : '';
}

// ---------------------------------------------------------------------------------------------------
// The panel: the cluster, a node, or a pod

const link = (text, to) => el('button', { type: 'button', className: 'link', onclick: () => { location.hash = to; } }, text);
const toNode = (name) => link(name, `#node/${encodeURIComponent(name)}`);
const toPod = (name) => link(name, `#pod/${encodeURIComponent(name)}`);
const heading = (text) => el('h3', {}, text);
const list = (...items) => el('ul', {}, ...items);
const back = () => el('button', { type: 'button', className: 'back', onclick: () => { location.hash = ''; } }, '← cluster');

/** What the address names: a kind and a name. */
function named() {
  const [, kind, name] = location.hash.match(/^#(node|pod)\/(.*)$/) || [];
  try {
    return [kind, decodeURIComponent(name || '')];
  } catch {
    return [];
  }
}

function showPanel() {
  const [kind, name] = named();
  view.selected = kind === 'node' ? name : null;
  const content = kind === 'node' && nodes.has(name) ? nodePanel(nodes.get(name)) : kind === 'pod' ? podPanel(name) : clusterPanel();
  at('panel').replaceChildren(...content.filter(Boolean));
}

function clusterPanel() {
  const all = [...nodes.values()];
  const troubled = all.filter((node) => node.troubles);
  const far = all.flatMap((node) => (node.pods || []).filter((pod) => pod.far).map((pod) => [node, pod]));
  const waits = waiting.map((one) => {
    const pod = `${one.namespace}/${one.pods[0]}`;
    const more = one.pods.length > 1 ? ` (${one.pods.length} pods)` : '';
    return el('li', {}, link(`${one.owner}${more}`, `#pod/${encodeURIComponent(pod)}`), ` in ${one.namespace}`);
  });
  return [
    el('h2', {}, 'Cluster'),
    ...(data.notes || []).map((note) => el('p', { className: 'soft' }, `Note: ${note}`)),
    heading(`Waiting (${waits.length})`),
    waits.length ? list(...shortened(waits)) : el('p', { className: 'soft' }, 'No pod waits for devices.'),
    ...whatIfForm(),
    far.length ? heading(`Far from their NICs (${far.length})`) : null,
    far.length ? list(...shortened(far.map(([node, pod]) => el('li', {}, toPod(pod.name), ' on ', toNode(node.name))))) : null,
    troubled.length ? heading(`Down or tainted (${troubled.length})`) : null,
    troubled.length ? list(...shortened(troubled.map((node) => el('li', {}, toNode(node.name), ': ', node.troubles.join('; '))))) : null,
  ];
}

/** At most 50 items of a list. */
function shortened(items) {
  const most = 50;
  return items.length <= most ? items : [...items.slice(0, most), el('li', { className: 'soft' }, `and ${items.length - most} more`)];
}

function whatIfForm() {
  if (!data.isServed) return [heading('What if'), el('p', { className: 'soft' }, 'Where a pod would go can be asked while `kubectl dranet ui` runs.')];
  const text = el('textarea', { spellcheck: false, value: whatIfForm.text, 'aria-label': 'Annotations of the pod' });
  const answer = el('div');
  const submit = async (event) => {
    event.preventDefault();
    whatIfForm.text = text.value;
    answer.replaceChildren(el('p', { className: 'soft' }, 'Asking …'));
    try {
      const found = await ask('what-if', { annotations: text.value });
      // It is broken for 80 columns; here the panel breaks it.
      answer.replaceChildren(el('pre', {}, found.text.replace(/\n {2}(?=\S)/g, ' ')));
      if (found.nodes.length) highlight({ fits: new Set(found.nodes) });
    } catch (error) {
      answer.replaceChildren(el('pre', {}, error.message));
    }
  };
  return [heading('What if a pod had'), el('form', { onsubmit: submit }, text, el('button', { type: 'submit' }, 'Where would it go?')), answer];
}
whatIfForm.text = 'dranet.io/aligned-nics: "1"\ndranet.io/gpus: "1"';

/** The numbers of the pods of a node, as in its picture. */
const badge = (number) => el('span', { className: 'badge' }, String(number));

function nodePanel(node) {
  const layout = layouts[node.layout];
  const pods = node.pods || [];
  const holders = new Map();
  pods.forEach((pod, number) => pod.devices.forEach((device) => {
    if (!holders.has(device)) holders.set(device, []);
    holders.get(device).push(number + 1);
  }));
  const word = Object.fromEntries(STATES);
  const devices = [...node.devices].map((letter, index) => el('li', { title: layout.addresses[index] || '' },
    sample(letter, index >= layout.gpus, index >= layout.gpus && node.late), el('span', {}, layout.names[index], el('span', { className: 'soft' }, ` ${word[letter]}`))));
  const where = [node.machine, node.fabric && `fabric ${node.fabric}`, groupOf(node)].filter(Boolean).join(' · ');
  const figure = el('div', { className: 'picture' });
  picture(node).then((text) => {
    const svg = text && drawing(text, node, holders);
    if (svg) figure.replaceChildren(wider(), svg);
    else figure.remove();
  }).catch(() => figure.remove());
  return [
    back(),
    el('h2', {}, node.name),
    el('p', { className: 'soft' }, where),
    node.closed ? el('p', { className: 'alarm' }, `It takes no pods: ${node.closed}.`) : null,
    node.late ? el('p', { className: 'soft' }, 'Its NICs are chosen when a pod starts.') : null,
    heading('Devices'),
    el('ul', { className: 'devices' }, ...devices),
    node.troubles ? heading('No new pod gets') : null,
    node.troubles ? list(...node.troubles.map((trouble) => el('li', {}, trouble))) : null,
    heading(`Pods (${pods.length})`),
    pods.length ? list(...pods.map((pod, number) => el('li', {}, badge(number + 1), podName(pod.name), ...paths(pod, node))))
      : el('p', { className: 'soft' }, 'No pod has its devices.'),
    figure,
  ];
}

/** Gives the panel more or less of the window. */
const wider = () => el('button', {
  type: 'button', className: 'wider', title: 'Larger or smaller picture', onclick: () => document.querySelector('main').classList.toggle('wide'),
}, '⤢');

const podName = (name) => (name.startsWith('claim ') ? el('span', {}, name) : toPod(name));

/** The devices of a pod in words. */
function paths(pod, node) {
  const lines = [];
  const byGpu = new Map();
  for (const [gpu, nic, path] of pod.pairs || []) {
    if (!byGpu.has(gpu)) byGpu.set(gpu, []);
    byGpu.get(gpu).push([nic, path]);
  }
  for (const [gpu, ends] of byGpu) {
    lines.push(el('p', {}, `${gpu} with ${ends.map(([nic, path]) => `${nic} (${path})`).join(', ')}`));
  }
  if (!lines.length) lines.push(el('p', { className: 'soft' }, pod.devices.map((device) => layouts[node.layout].names[device]).join(', ')));
  for (const path of new Set((pod.pairs || []).map(([, , path]) => path))) {
    if (data.paths[path]) lines.push(el('p', { className: 'soft' }, `${path}: ${data.paths[path].replace(/^Connection traversing /, 'over ')}`));
  }
  if (pod.far) lines.push(el('p', { className: 'warn' }, pod.promised ? `Farther than promised (${pod.promised}), or than plans allow.` : 'Farther than plans allow.'));
  return lines;
}

function podPanel(name) {
  const places = [...nodes.values()].flatMap((node) => (node.pods || []).filter((pod) => pod.name === name).map((pod) => [node, pod]));
  const group = waiting.find((one) => one.pods.some((pod) => `${one.namespace}/${pod}` === name));
  const content = [back(), el('h2', {}, name)];
  for (const [node, pod] of places) {
    content.push(heading('Where it is'), el('p', {}, toNode(node.name), node.fabric ? ` · fabric ${node.fabric}` : ''), ...paths(pod, node));
  }
  if (group) {
    if (group.pods.length > 1) content.push(el('p', { className: 'soft' }, `One of ${group.pods.length} pods of ${group.owner} that wait.`));
    content.push(heading('Why it waits, and what would let it run'));
    const why = el('pre', {}, 'Asking …');
    explain(name).then((text) => { why.textContent = text.trim(); }).catch((error) => { why.textContent = error.message; });
    content.push(why);
  }
  if (!places.length && !group) content.push(el('p', { className: 'soft' }, 'It neither has devices nor waits for any.'));
  return content;
}

// ---------------------------------------------------------------------------------------------------
// The picture of a node

const SVG = 'http://www.w3.org/2000/svg';
const TAGS = new Set(['svg', 'g', 'rect', 'polyline', 'text', 'title']);
const ATTRIBUTES = new Set(['viewBox', 'id', 'class', 'x', 'y', 'width', 'height', 'rx', 'points', 'font-size', 'font-weight', 'role']);

/** A copy of a picture: known elements and attributes only. */
function copied(element) {
  if (!TAGS.has(element.localName)) return null;
  const copy = document.createElementNS(SVG, element.localName);
  for (const { name, value } of element.attributes) if (ATTRIBUTES.has(name)) copy.setAttribute(name, value);
  for (const child of element.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) copy.append(child.nodeValue);
    else if (child.nodeType === Node.ELEMENT_NODE) copy.append(copied(child) || '');
  }
  return copy;
}

/** The tree of a node with the states of its devices, and the numbers of the pods that have them. */
function drawing(text, node, holders) {
  // The style of the page is used instead; the policy of the page forbids others.
  const read = new DOMParser().parseFromString(text.replace(/<style>[^<]*<\/style>/, ''), 'image/svg+xml');
  const svg = copied(read.documentElement);
  if (!svg) return null;
  svg.removeAttribute('width');
  svg.removeAttribute('height');
  const layout = layouts[node.layout];
  layout.addresses.forEach((address, index) => {
    const end = address && `-${address.replace(/[:.]/g, '-')}`;
    const box = end && [...svg.querySelectorAll('g[id]')].find((group) => group.id.endsWith(end));
    if (!box) return;
    box.classList.add(`is-${node.devices[index]}`);
    const frame = box.querySelector('rect');
    (holders.get(index) || []).slice(0, 6).forEach((number, order) => {
      const x = Number(frame.getAttribute('x')) + Number(frame.getAttribute('width')) - 14 - order * 22;
      const y = Number(frame.getAttribute('y')) + 11;
      const badge = (tag, attributes, words) => {
        const mark = document.createElementNS(SVG, tag);
        for (const [key, value] of Object.entries(attributes)) mark.setAttribute(key, value);
        mark.textContent = words;
        box.append(mark);
      };
      badge('rect', { class: 'number', x: x - 9, y: y - 8, width: 18, height: 15, rx: 7.5 }, '');
      badge('text', { class: 'in-number', x, y: y + 4, 'font-size': 11, 'font-weight': 'bold', 'text-anchor': 'middle' }, String(number));
    });
  });
  svg.querySelectorAll('[id]').forEach((element) => element.removeAttribute('id'));
  return svg;
}

// ---------------------------------------------------------------------------------------------------
// Questions to the program that serves the page

const token = new URLSearchParams(location.search).get('token') || '';

async function answered(path, query) {
  const answer = await fetch(`${path}?${new URLSearchParams({ ...query, token })}`);
  const text = await answer.text();
  if (!answer.ok) throw new Error(text || `the program answered ${answer.status}`);
  return text;
}

const ask = async (path, query) => JSON.parse(await answered(path, query));

async function picture(node) {
  if (data.isServed) return answered('picture', { node: node.name });
  return data.pictures[node.layout] || null;
}

async function explain(pod) {
  if (data.isServed) return answered('explain', { pod });
  return data.explained[pod] || `This file has no answer for this pod: ask \`kubectl dranet explain pod/${pod.split('/')[1]} -n ${pod.split('/')[0]}\`.`;
}

// ---------------------------------------------------------------------------------------------------
// Events

function take(update) {
  const { changed, isMoved } = merge(update);
  if (isMoved) {
    layOut();
    showLegend();
  } else {
    changed.forEach(drawNode);
    new Set(changed.map((name) => tiles.get(name).fabric)).forEach(headline);
  }
  showNumbers();
  const isShown = view.selected === null || changed.includes(view.selected) || (update.gone || []).includes(view.selected);
  // A person may be typing there.
  if (isShown && !at('panel').contains(document.activeElement)) showPanel();
}

function listen() {
  const events = new EventSource(`events?${new URLSearchParams({ since: data.revision, token })}`);
  const now = () => new Date().toLocaleTimeString('en-GB');
  events.onopen = () => showState(`live · ${now()}`, false);
  events.onmessage = (event) => {
    take(JSON.parse(event.data));
    showState(`live · last change ${now()}`, false);
  };
  events.onerror = () => showState('not connected: is `kubectl dranet ui` still running?', true);
}

function select(name) {
  const before = view.selected;
  location.hash = `#node/${encodeURIComponent(name)}`;
  view.selected = name;
  if (before) drawNode(before);
  drawNode(name);
  reveal(name);
}

/** Scrolls to the node. */
function reveal(name) {
  const tile = tiles.get(name);
  if (!tile || !tile.strips.length) return;
  const map = at('map');
  const y = tile.strips[0].canvas.getBoundingClientRect().top - map.getBoundingClientRect().top + map.scrollTop + tile.y - tile.strips[0].top;
  if (y < map.scrollTop + 20) map.scrollTop = y - 60;
  else if (y + tile.measures.height > map.scrollTop + map.clientHeight - 20) map.scrollTop = y - map.clientHeight + 120;
}

/** The nearest node in a direction. */
function neighbour(key) {
  const all = fabrics.flatMap((fabric) => fabric.tiles);
  const from = tiles.get(view.selected);
  if (!from) return all[0];
  const order = all.indexOf(from);
  if (key === 'ArrowRight') return all[order + 1];
  if (key === 'ArrowLeft') return all[order - 1];
  const sign = key === 'ArrowDown' ? 1 : -1;
  const top = (tile) => tile.strips[0].canvas.getBoundingClientRect().top + tile.y - tile.strips[0].top;
  const y = top(from);
  let best = null;
  for (const tile of all) {
    const down = (top(tile) - y) * sign;
    if (down <= 1) continue;
    const distance = down * 4 + Math.abs(tile.x - from.x);
    if (!best || distance < best.distance) best = { tile, distance };
  }
  return best && best.tile;
}

function resize(step) {
  const now = view.size === null ? sizeFor(nodes.size) : view.size;
  view.size = Math.min(SIZES.length - 1, Math.max(0, now + step));
  layOut();
}

function showHint(event) {
  const hint = at('hint');
  const tile = tileAt(event);
  hint.hidden = !tile;
  if (!tile) return;
  const { node } = tile;
  const device = deviceAt(tile, event);
  const lines = [el('b', {}, node.name)];
  if (device !== null) {
    const word = Object.fromEntries(STATES)[node.devices[device]];
    const holders = (node.pods || []).filter((pod) => pod.devices.includes(device)).map((pod) => pod.name);
    lines.push(`${layouts[node.layout].names[device]}: ${word}${holders.length ? ` (${holders.join(', ')})` : ''}`);
  } else {
    const sum = totals([node]);
    lines.push(`${sum.gpusFree} of ${sum.gpus} GPUs and ${sum.nicsFree} of ${sum.nics} NICs free${node.closed ? `; ${node.closed}` : ''}`);
  }
  hint.replaceChildren(...lines);
  const left = Math.min(event.clientX + 14, window.innerWidth - hint.offsetWidth - 8);
  const top = event.clientY + 18 + hint.offsetHeight > window.innerHeight ? event.clientY - hint.offsetHeight - 10 : event.clientY + 18;
  hint.style.left = `${left}px`;
  hint.style.top = `${top}px`;
}

function onKey(event) {
  const isTyping = event.target.matches('input, textarea');
  if (event.key === 'Escape') {
    at('find').value = '';
    highlight({});
    location.hash = '';
    at('map').focus();
  } else if (isTyping || event.ctrlKey || event.metaKey || event.altKey) {
    return;
  } else if (event.key === '/') {
    at('find').focus();
  } else if (event.key === '+' || event.key === '=') {
    resize(1);
  } else if (event.key === '-') {
    resize(-1);
  } else if (event.key.startsWith('Arrow') && !at('panel').contains(event.target)) {
    const tile = neighbour(event.key);
    if (tile) select(tile.node.name);
  } else {
    return;
  }
  event.preventDefault();
}

function start() {
  readColours();
  merge(data);
  document.title = `dranet: ${data.title}`;
  at('title').textContent = data.title;
  layOut();
  showNumbers();
  showLegend();
  showPanel();
  showState(data.isLive ? 'connecting …' : `as of ${data.time}`, false);

  at('map').addEventListener('click', (event) => {
    const tile = tileAt(event);
    if (tile) select(tile.node.name);
  });
  at('map').addEventListener('mousemove', showHint);
  at('map').addEventListener('mouseleave', () => { at('hint').hidden = true; });
  at('find').addEventListener('input', () => highlight({ query: at('find').value }));
  at('search').addEventListener('submit', (event) => {
    event.preventDefault();
    const found = [...nodes.values()].filter(matches).sort((one, other) => compare(one.name, other.name));
    if (found.length) select(found[0].name);
  });
  at('smaller').addEventListener('click', () => resize(-1));
  at('larger').addEventListener('click', () => resize(1));
  document.addEventListener('keydown', onKey);
  window.addEventListener('hashchange', () => {
    const before = view.selected;
    showPanel();
    [before, view.selected].filter(Boolean).forEach(drawNode);
  });
  let width = at('map').clientWidth;
  new ResizeObserver(() => {
    if (at('map').clientWidth === width) return;
    width = at('map').clientWidth;
    layOut();
  }).observe(at('map'));
  const redraw = () => {
    readColours();
    drawAll();
    showLegend();
    showPanel();
  };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  window.addEventListener('beforeprint', () => {
    readColours();
    fabrics.forEach((fabric) => fabric.strips.forEach(drawStrip));
  });
  window.addEventListener('afterprint', redraw);
  if (data.isLive) listen();
}

start();
