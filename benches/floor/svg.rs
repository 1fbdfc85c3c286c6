//! Curves as a drawing.

use std::fmt::Write as _;

use crate::measure::Curve;

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 220.0;
/// Room for the words around a panel.
const MARGIN: f64 = 48.0;

/// One panel a curve, two beside each other.
pub fn draw(curves: &[Curve]) -> anyhow::Result<String> {
    let rows = curves.len().div_ceil(2);
    let (width, height) = (2.0 * WIDTH, rows as f64 * HEIGHT);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    for (at, curve) in curves.iter().enumerate() {
        let (left, top) = ((at % 2) as f64 * WIDTH, (at / 2) as f64 * HEIGHT);
        panel(&mut svg, curve, left, top)?;
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn panel(svg: &mut String, curve: &Curve, left: f64, top: f64) -> anyhow::Result<()> {
    let all = || curve.ours.iter().chain(&curve.floor);
    let most_x = all().map(|p| p.0).fold(1.0, f64::max);
    let most_y = all().map(|p| p.1).fold(1.0, f64::max);
    let x = |value: f64| left + MARGIN + value / most_x * (WIDTH - 1.5 * MARGIN);
    let y = |value: f64| top + HEIGHT - MARGIN - value / most_y * (HEIGHT - 1.75 * MARGIN);
    let (x0, y0, x1, y1) = (x(0.0), y(0.0), x(most_x), y(most_y));
    writeln!(svg, "<path d=\"M{x0:.0} {y1:.0}V{y0:.0}H{x1:.0}\" fill=\"none\" stroke=\"#888\"/>")?;
    writeln!(svg, "<text x=\"{x0:.0}\" y=\"{:.0}\" font-weight=\"bold\">{}</text>", y1 - 14.0, curve.work)?;
    writeln!(svg, "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{most_y:.0} ms</text>", x0 - 4.0, y1 + 4.0)?;
    writeln!(svg, "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">0</text>", x0 - 4.0, y0 + 4.0)?;
    writeln!(svg, "<text x=\"{x1:.0}\" y=\"{:.0}\" text-anchor=\"end\">{most_x:.0} {}</text>", y0 + 16.0, curve.over)?;
    for (points, colour, name) in [(&curve.floor, "#b5651d", "git alone"), (&curve.ours, "#1d5fb5", "worktree")] {
        if points.is_empty() {
            continue;
        }
        let line: Vec<String> = points.iter().map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1))).collect();
        writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            line.join(" ")
        )?;
        for point in points {
            writeln!(svg, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\" fill=\"{colour}\"/>", x(point.0), y(point.1))?;
        }
        let offset = if name == "worktree" { 0.0 } else { 14.0 };
        writeln!(svg, "<text x=\"{:.0}\" y=\"{:.0}\" fill=\"{colour}\">{name}</text>", x0 + 8.0, y1 + 10.0 + offset)?;
    }
    Ok(())
}
