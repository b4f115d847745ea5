"""Pictures as PNG and SVG, and on axes (`plot_...`). Matplotlib is loaded when one of these names
is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.report.pictures.comparison import comparison_png, comparison_svg, plot_comparison
    from feval.report.pictures.coupled import coupling_png
    from feval.report.pictures.curve import curve_panels_png, curves_png, curves_svg, plot_curve
    from feval.report.pictures.figures import figure_png, figure_svg
    from feval.report.pictures.forecast import forecast_png, plot_budget, plot_forecast
    from feval.report.pictures.questions import plot_questions
    from feval.report.pictures.surface import surface_png, surface_svg

__all__ = [
    "comparison_png",
    "comparison_svg",
    "coupling_png",
    "curve_panels_png",
    "curves_png",
    "curves_svg",
    "figure_png",
    "figure_svg",
    "forecast_png",
    "plot_budget",
    "plot_comparison",
    "plot_curve",
    "plot_forecast",
    "plot_questions",
    "surface_png",
    "surface_svg",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "comparison": ("comparison_png", "comparison_svg", "plot_comparison"),
        "coupled": ("coupling_png",),
        "curve": ("curve_panels_png", "curves_png", "curves_svg", "plot_curve"),
        "figures": ("figure_png", "figure_svg"),
        "forecast": ("forecast_png", "plot_budget", "plot_forecast"),
        "questions": ("plot_questions",),
        "surface": ("surface_png", "surface_svg"),
    },
)
