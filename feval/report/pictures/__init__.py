"""Pictures as PNG and SVG. Matplotlib is loaded when one of these names is first used: `pictures.curves_png(...)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.report.pictures.comparison import comparison_png, comparison_svg
    from feval.report.pictures.coupled import coupling_png
    from feval.report.pictures.curve import curve_panels_png, curves_png, curves_svg
    from feval.report.pictures.forecast import forecast_png
    from feval.report.pictures.surface import surface_png, surface_svg

__all__ = [
    "comparison_png",
    "comparison_svg",
    "coupling_png",
    "curve_panels_png",
    "curves_png",
    "curves_svg",
    "forecast_png",
    "surface_png",
    "surface_svg",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "comparison": ("comparison_png", "comparison_svg"),
        "coupled": ("coupling_png",),
        "curve": ("curve_panels_png", "curves_png", "curves_svg"),
        "forecast": ("forecast_png",),
        "surface": ("surface_png", "surface_svg"),
    },
)
