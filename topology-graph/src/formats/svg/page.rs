//! The layout of the page: GPU meshes, a row per NUMA node, and the legend.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::super::outline::{DeviceKind, Node, Row};
use super::captions::{Flow, fabric, legend};
use super::scene::{Block, Label, Rect, Scene, Shape};
use super::text::Style;
use super::tree::{COLUMN_GAP, COLUMN_MIN, Trees, columns, depth, list_height};

/// The maximum width of a picture; a README shows this without scaling.
const PAGE_MAX: u32 = 1_200;
const MARGIN: u32 = 16;
const PADDING: u32 = 14;
const TITLE_HEIGHT: u32 = 36;
const COLUMN_MAX: u32 = 272;
/// The minimum number of columns, so that titles and legend fit.
const COLUMNS_MIN: usize = 2;
/// The gap between two trees in one column.
const TREE_GAP: u32 = 16;

/// The layout of a row's trees.
enum RowLayout<'r> {
    /// Side by side, including this many upper levels.
    Wide { levels: usize, columns: usize },
    /// Lists in columns, one below the other.
    Lists(Vec<Vec<&'r Node>>),
}

/// Lays out the page. `fabrics` are the titles and lines of GPU meshes.
pub(super) fn page(rows: &[Row], fabrics: &[(String, String)]) -> Scene {
    let most = most_columns();
    let layouts: Vec<RowLayout<'_>> = rows.iter().map(|row| layout(row, most)).collect();
    let count = layouts.iter().map(RowLayout::columns).max().unwrap_or(0).clamp(COLUMNS_MIN, most);
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let column = ((inner_max() + COLUMN_GAP) / count - COLUMN_GAP).min(COLUMN_MAX);
    let width = count * (column + COLUMN_GAP) - COLUMN_GAP + 2 * PADDING;
    let mut scene = Scene { width: width + 2 * MARGIN, ..Scene::default() };
    let mut flow = Flow { x: MARGIN, y: MARGIN, width };
    for (name, text) in fabrics {
        fabric(&mut scene, &mut flow, name, text);
    }
    for (index, (row, layout)) in rows.iter().zip(&layouts).enumerate() {
        panel(&mut scene, &mut flow, row, &format!("row{index}"), column, layout);
    }
    legend(&mut scene, &mut flow, rows);
    scene.height = flow.y;
    scene
}

fn inner_max() -> u32 {
    PAGE_MAX - 2 * (MARGIN + PADDING)
}

fn most_columns() -> usize {
    usize::try_from((inner_max() + COLUMN_GAP) / (COLUMN_MIN + COLUMN_GAP)).unwrap_or(1)
}

impl RowLayout<'_> {
    fn columns(&self) -> usize {
        match self {
            Self::Wide { columns, .. } => *columns,
            Self::Lists(lists) => lists.len(),
        }
    }
}

/// Chooses as many branches side by side as fit. Levels that add no branches stay lists, which are
/// lower.
fn layout(row: &Row, most: usize) -> RowLayout<'_> {
    let deepest = row.roots.iter().map(depth).max().unwrap_or(0);
    let fitting = (0..=deepest)
        .map(|levels| (row.roots.iter().map(|root| columns(root, levels)).sum::<usize>(), levels));
    let fitting = fitting.take_while(|(columns, _)| *columns <= most);
    match fitting.max_by_key(|(columns, levels)| (*columns, Reverse(*levels))) {
        Some((columns, levels)) => RowLayout::Wide { levels, columns },
        None => RowLayout::Lists(lists(&row.roots, most)),
    }
}

/// Puts trees with GPUs side by side. A NIC's tree goes below that of its GPU; a tree without GPU
/// goes into the shortest column.
fn lists(roots: &[Node], most: usize) -> Vec<Vec<&Node>> {
    let mut lists: Vec<Vec<&Node>> = vec![Vec::new(); most];
    let (gpus, rest): (Vec<&Node>, Vec<&Node>) = roots.iter().partition(|root| has_gpu(root));
    for root in gpus.into_iter().chain(rest) {
        let at = lists
            .iter()
            .position(|list| list.iter().any(|other| are_paired(other, root)))
            .or_else(|| (0..most).min_by_key(|at| height(&lists[*at])))
            .unwrap_or(0);
        lists[at].push(root);
    }
    lists.retain(|list| !list.is_empty());
    lists
}

fn has_gpu(root: &Node) -> bool {
    root.devices().iter().any(|device| device.kind == DeviceKind::Gpu)
}

fn are_paired(a: &Node, b: &Node) -> bool {
    !pair_groups(a).is_disjoint(&pair_groups(b))
}

fn pair_groups(node: &Node) -> BTreeSet<usize> {
    node.devices().iter().filter_map(|device| device.pair_group).collect()
}

fn height(list: &[&Node]) -> u32 {
    list.iter().map(|node| list_height(node) + TREE_GAP).sum()
}

/// Draws one NUMA node.
fn panel(
    scene: &mut Scene,
    flow: &mut Flow,
    row: &Row,
    id: &str,
    column: u32,
    layout: &RowLayout<'_>,
) {
    let top = flow.y + TITLE_HEIGHT;
    let mut trees = Trees { scene, prefix: id.to_owned(), column };
    let end = draw(&mut trees, row, layout, flow.x + PADDING, top);
    let height = end + PADDING - flow.y;
    let title = Label {
        class: "strong",
        style: Style::Title,
        x: flow.x + PADDING,
        baseline: flow.y + 24,
        text: Style::Title.fit(&row.title, flow.width - 2 * PADDING),
    };
    let at = Rect { x: flow.x, y: flow.y, width: flow.width, height };
    scene.panels.push(Block {
        id: id.to_owned(),
        tip: row.title.clone(),
        shapes: vec![Shape { class: "panel", at, radius: 8 }],
        labels: vec![title],
    });
    flow.down(height);
}

/// Draws the trees of a row; returns the bottom of the lowest.
fn draw(trees: &mut Trees<'_>, row: &Row, layout: &RowLayout<'_>, left: u32, top: u32) -> u32 {
    let mut bottom = top;
    let mut x = left;
    match layout {
        RowLayout::Wide { levels, .. } => {
            for root in &row.roots {
                bottom = bottom.max(trees.place(root, x, top, *levels).bottom);
                x += trees.span(columns(root, *levels)) + COLUMN_GAP;
            }
        }
        RowLayout::Lists(lists) => {
            for list in lists {
                let mut y = top;
                for root in list {
                    let end = trees.list(root, x, y).bottom;
                    bottom = bottom.max(end);
                    y = end + TREE_GAP;
                }
                x += trees.column + COLUMN_GAP;
            }
        }
    }
    bottom
}
