"""Run notebooks, and write what came out into them: python tests/support/notebooks.py
docs/notebooks/*.ipynb.
"""

import base64
import io
import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image
from places import ROOT


def executed(path):
    """The notebook after all its cells ran in an empty folder; a cell that fails raises
    `CellExecutionError`.
    """
    notebook = nbformat.read(path, as_version=4)
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "PYTHONPATH": paths,
            "IPYTHONDIR": folder,
            "JUPYTER_RUNTIME_DIR": folder,
        }
        client = NotebookClient(
            notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": folder}}
        )
        client.execute(env=environment)
    return notebook


def tidy(notebook):
    """The same without times, and without what depends on the machine."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
    }
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":  # progress comes and goes with the load of the machine
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                if "image/png" in output.get("data", {}):
                    output.data["image/png"] = small(output.data["image/png"])
    return notebook


def small(picture):
    """A PNG in base 64, with 256 colours, which pictures of lines do not exceed."""
    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB").quantize(256)
    image.save(out := io.BytesIO(), "PNG", optimize=True)
    return base64.b64encode(out.getvalue()).decode()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        nbformat.write(tidy(executed(Path(name))), name)
