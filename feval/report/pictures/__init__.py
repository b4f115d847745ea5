"""Pictures, each a `Picture` that is saved as PNG or SVG or drawn on axes. Matplotlib is loaded
when one of these names is first used.
"""

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.report.pictures.drawing import DEFAULT, Picture, PlotOptions, style
    from feval.report.pictures.lines import (
        along,
        budget,
        comparison,
        curves,
        forecast,
        plot_curve,
        questions,
    )
    from feval.report.pictures.panels import (
        coupling,
        curve_panels,
        figure,
        figure_png,
        figure_svg,
        price_map,
        surface,
    )

__all__ = [
    "DEFAULT",
    "Picture",
    "PlotOptions",
    "along",
    "budget",
    "comparison",
    "coupling",
    "curve_panels",
    "curves",
    "figure",
    "figure_png",
    "figure_svg",
    "forecast",
    "plot_curve",
    "price_map",
    "questions",
    "style",
    "surface",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "lines": " ".join(__all__),  # has all of them but these
        "drawing": "style",
        "panels": "coupling curve_panels figure figure_png figure_svg price_map surface",
    },
)
