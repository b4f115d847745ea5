"""`manifest.json`: its one definition, checked whenever a recording is opened, written or verified.

Its fields are written as pydantic's core checks them: loading the whole of pydantic, and having it
read models, would take a quarter of the time from `python` to a first curve.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic_core import SchemaValidator, ValidationError
from pydantic_core.core_schema import (
    CoreConfig,
    CoreSchema,
    dict_schema,
    float_schema,
    int_schema,
    list_schema,
    literal_schema,
    nullable_schema,
    str_schema,
    typed_dict_field,
    typed_dict_schema,
)

from feval.cards import PriceList
from feval.cards.names import base_of
from feval.cards.reading import sentence, some
from feval.errors import (
    ConflictError,
    DamagedRecordingError,
    NewerFormatError,
    NotARecordingError,
    RecordingError,
)
from feval.recording.content import CAUTION, MOST_SERVED
from feval.recording.layout.format import (
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    PROBES,
    SCORES,
    Part,
    Record,
    is_safe_path,
    leaf_hash,
    read_json,
    recording_hash,
)
from feval.recording.parts import CHANNELS, PAIR_PARTS

SEVERAL_FILES = "several-files"
"""The feature of a part that lies in several files."""
FEATURES = frozenset(("equality", *CHANNELS, "scores", PROBES, SEVERAL_FILES))
"""What a recording may have that a reader must know, since it would lose it or take it for
something else.
"""
_ALWAYS = frozenset(("dataset", "questions", "llm", *PAIR_PARTS))

# Unknown fields are ignored on opening, so that a later feval may add some within a format; `feval
# verify` reports them.
_CONFIG = CoreConfig(strict=True, extra_fields_behavior="allow")
_TEXT = str_schema()
_NAME = str_schema(min_length=1)
_SHA256 = str_schema(pattern=r"^[0-9a-f]{64}$")
_COUNT = int_schema(ge=0)
_TEXT_OR_NULL = nullable_schema(_TEXT)
_TABLE = dict_schema(_TEXT)  # of any JSON


def _record(*optional: str, **fields: CoreSchema) -> CoreSchema:
    """Return the schema of a table with these fields, some of which may be left out."""
    return typed_dict_schema(
        {
            name: typed_dict_field(schema, required=name not in optional)
            for name, schema in fields.items()
        },
        config=_CONFIG,
    )


FILE_RECORD = _record(sha256=_SHA256, bytes=_COUNT, rows=_COUNT)
"""One file: the SHA-256 and number of its bytes, and how many rows it has."""

EQUALITY_RECORD = _record(
    name=_TEXT, equal=_COUNT, different=_COUNT, undecided=_COUNT, not_asked=_COUNT
)
"""The equality between normal forms of a dataset's answers: its name, and the compared pairs by
outcome.
"""

DATASET_RECORD = _record(
    id=_NAME,
    title=_TEXT,
    answer_kind=_TEXT,
    extractor=_TEXT,
    questions=_COUNT,
    with_gold=_COUNT,
    system_prompt=_TEXT_OR_NULL,
    licence=_TEXT_OR_NULL,
    equality=nullable_schema(EQUALITY_RECORD),
)
"""A dataset; where `equality` is null, answers are equal where their normal forms are."""

LLM_RECORD = _record(
    name=_NAME,
    base=_NAME,
    temperature=nullable_schema(float_schema()),
    max_tokens=nullable_schema(int_schema()),
    decoding=_TABLE,
)
"""An LLM: the variant's full name, its base name and its decoding."""

PAIR_RECORD = _record(
    *("unclosed_thoughts", "empty_replies", "depth", "branching", "turns", "served"),
    dataset=_TEXT,
    llm=_TEXT,
    counter=_TEXT,
    cots=_COUNT,
    smallest_pool=_COUNT,
    largest_pool=_COUNT,
    no_answer=_COUNT,
    unclosed_thoughts=_COUNT,
    empty_replies=_COUNT,
    depth=_COUNT,
    branching=_COUNT,
    turns=_COUNT,
    served=dict_schema(_TEXT, _COUNT, max_length=MOST_SERVED),
)
"""One LLM on one dataset; `unclosed_thoughts` (CoTs that end inside one) and other `empty_replies`
are left out when 0.

Where the CoTs are steps of trees, `depth` counts the steps of the longest path, `branching` the
most children of a step, `turns` the steps that reply to a whole CoT. `served` counts the CoTs of
each model that the replies say answered.
"""

SCORER_RECORD = _record(name=_NAME, kind=_TEXT, parameters=_TABLE)
"""A scorer: what gave scores, and with which parameters."""

SCORES_RECORD = _record(
    dataset=_TEXT,
    llm=_TEXT,
    scorer=_TEXT,
    cots=_COUNT,
    with_score=_COUNT,
    with_steps=_COUNT,
    prompt_tokens=_COUNT,
    output_tokens=_COUNT,
)
"""One scorer's scores of one LLM on one dataset; tokens are those that the scorer consumed, as far
as it reports them.
"""

PROBES_RECORD = _record(
    dataset=_TEXT,
    llm=_TEXT,
    cue=_TEXT_OR_NULL,
    interval=nullable_schema(int_schema(ge=1)),
    traces=_COUNT,
    probes=_COUNT,
    no_answer=_COUNT,
    output_tokens=_COUNT,
)
"""The probes of one LLM on one dataset.

`cue` is the text that made the LLM answer (null where it is not known), `interval` the output
tokens between two probes (null where they are irregular), `traces` the CoTs with a probe;
`output_tokens` are those of the probes, as far as they are known.
"""

LEAF = _record(dataset=_TEXT, llm=_TEXT_OR_NULL, part=_TEXT, sha256=_SHA256)
"""One leaf of the recording hash: SHA-256 over the logical content of one part
(`docs/recording-format.md`).
"""

PRICES_RECORD = _record(id=_TEXT, date=_TEXT, source=_TEXT, prices=_TABLE)
"""A price list that is no card of feval's own; as a receipt has it."""

MANIFEST_RECORD = _record(
    "price_list",
    format=literal_schema([FORMAT]),
    format_version=int_schema(),
    features=list_schema(_TEXT),
    created=_TEXT,
    feval_version=_TEXT,
    recording_hash=_SHA256,
    prices=_TEXT,
    price_list=PRICES_RECORD,
    operation=_TABLE,
    parents=list_schema(_TABLE),
    licences=dict_schema(_TEXT, _TEXT_OR_NULL),
    notes=list_schema(_TEXT),
    datasets=list_schema(DATASET_RECORD),
    llms=list_schema(LLM_RECORD),
    pairs=list_schema(PAIR_RECORD),
    scorers=list_schema(SCORER_RECORD),
    scores=list_schema(SCORES_RECORD),
    probes=list_schema(PROBES_RECORD),
    leaves=list_schema(LEAF),
    files=dict_schema(_TEXT, FILE_RECORD),
    checksum=_SHA256,  # of all other fields
)
"""The whole of `manifest.json`."""

_VALIDATOR = SchemaValidator(MANIFEST_RECORD)


_Records = dict[str, Record]


class Manifest:
    """A manifest that was read and checked, with its records by name.

    `raw` is the whole `MANIFEST_RECORD`, `hash` the recording hash, `prices` the id of the price
    list it was recorded under (see `named_prices`), `keyed` has the records of scores and probes by
    part.
    """

    def __init__(self, raw: Record) -> None:
        self.raw = raw
        self.hash: str = raw["recording_hash"]
        self.prices: str = raw["prices"]
        self.datasets: _Records = {record["id"]: record for record in raw["datasets"]}
        self.llms: _Records = {record["name"]: record for record in raw["llms"]}
        self.pairs: dict[tuple[str, str], Record] = {
            (record["dataset"], record["llm"]): record for record in raw["pairs"]
        }
        scores = {_part(SCORES + record["scorer"], record): record for record in raw["scores"]}
        self.keyed: dict[Part, Record] = {
            **scores,
            **{_part(PROBES, record): record for record in raw["probes"]},
        }
        self.files: _Records = raw["files"]
        self.leaves: dict[Part, str] = {
            _part(leaf["part"], leaf): leaf["sha256"] for leaf in raw["leaves"]
        }

    @property
    def cautions(self) -> list[str]:
        """The notes that every result repeats, such as how samples were selected."""
        # a recording derived from another one has words of its own before the parent's notes
        said = (note.partition(CAUTION)[2] for note in self.raw["notes"])
        return [CAUTION + sentence for sentence in said if sentence]

    def served_models(self) -> Iterator[AnsweringModels]:
        """Yield the pairs whose replies state another name than was asked."""
        for (dataset, llm), pair in self.pairs.items():
            names: Mapping[str, int] = pair.get("served", {})
            asked = self.llms[llm]["decoding"].get("model")
            asked = asked if isinstance(asked, str) else base_of(llm)
            if names.keys() - {asked}:
                yield AnsweringModels(llm, dataset, asked, names)


def _part(name: str, record: Record) -> Part:
    return Part(name, record["dataset"], record["llm"])


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a recording; errors are those of `open_recording`."""
    path = folder / MANIFEST
    raw = read_json(folder)
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise NotARecordingError(
            f'{path} is not the manifest of a recording: it lacks "format": "{FORMAT}".'
        )
    version, stated = raw.get("format_version"), raw.get("features")
    if (
        version != FORMAT_VERSION
        or not isinstance(stated, list)
        or not FEATURES.issuperset(map(str, stated))
    ):
        is_newer = type(version) is int and version >= FORMAT_VERSION and isinstance(stated, list)
        raise (NewerFormatError if is_newer else RecordingError)(
            f"{path} has format {version!r:.40} with features {stated!r:.200}, and this feval reads"
            f" format {FORMAT_VERSION} with {', '.join(sorted(FEATURES))}: import or record it"
            f" again{', or install a newer feval' * is_newer}."
        )
    try:
        check_manifest(raw)
    except ValidationError as error:
        raise DamagedRecordingError(
            f"{path} {sentence(error)}; fetch or make the recording again."
        ) from error
    manifest = Manifest(raw)
    for problem in _contradictions(manifest):
        raise DamagedRecordingError(f"{path} {problem}; fetch or make the recording again.")
    if raw["checksum"] != (computed := checksum(raw)):
        raise DamagedRecordingError(
            f"{path} was changed after it was written: it should have the checksum"
            f" {raw['checksum']}, found {computed}. Fetch or make the recording again."
        )
    return manifest


def named_prices(manifests: Iterable[Manifest]) -> str | PriceList:
    """Return the price list that recordings name: its id, or the list itself where they hold its
    numbers; a `ConflictError` where they differ. `recorded` gives way to another: `--prices
    recorded` takes the USD of any CoTs.
    """
    read = list(manifests)
    ids = sorted({manifest.prices for manifest in read})
    if len(ids) > 1:
        ids = [name for name in ids if name != "recorded"]
    if len(ids) > 1:
        raise ConflictError(
            f"The recordings name different price lists ({', '.join(ids)}). Open them together with"
            " one, --prices LIST; recordings of one list can be merged."
        )
    held = [manifest.raw["price_list"] for manifest in read if "price_list" in manifest.raw]
    if not held:
        return ids[0]
    prices: Record = {}
    for llm, price in (pair for each in held for pair in each["prices"].items()):
        if prices.setdefault(llm, price) != price:
            raise ConflictError(
                f"The recordings name price lists {ids[0]!r} in which {llm} costs {prices[llm]} and"
                f" {price}. Open them together with one, --prices LIST."
            )
    return PriceList(**{**held[0], "prices": prices})


def features(parts: Iterable[str], paths: Iterable[str]) -> list[str]:
    """Return what of `FEATURES` a reader of leaves of these parts and of these files must know, and
    any part beyond them.
    """
    found = {part.partition("/")[0] for part in parts} - _ALWAYS
    for path in paths:
        if path.endswith(".parquet") and path.count("/") > 2 + path.startswith(SCORES):
            found.add(SEVERAL_FILES)
    return sorted(found)


def manifest_bytes(manifest: Record) -> bytes:
    """Return the content of `manifest.json`: the fields, which are checked, and their checksum."""
    fields = {**manifest, "checksum": checksum(json.loads(json.dumps(manifest, allow_nan=False)))}
    check_manifest(fields, unknown_fields=False)
    return json.dumps(fields, ensure_ascii=False, indent=1).encode()


def checksum(raw: Record) -> str:
    """Return the SHA-256 over all fields but the checksum, written as a line of a leaf is."""
    return leaf_hash([{name: value for name, value in raw.items() if name != "checksum"}])


def check_manifest(raw: object, *, unknown_fields: bool = True) -> None:
    """Check the fields of a manifest; wrong ones, or unknown ones that are not let through, are a
    `pydantic.ValidationError`.
    """
    _VALIDATOR.validate_python(raw, extra=None if unknown_fields else "forbid")


def _contradictions(manifest: Manifest) -> Iterator[str]:
    """Yield what the records say wrongly of each other."""
    raw, leaves = manifest.raw, manifest.leaves
    entries = {name: raw[name] for name in ("datasets", "llms", "pairs", "leaves")}
    for name, records in (entries | {"keyed": raw["scores"] + raw["probes"]}).items():
        if len(records) > len(getattr(manifest, name)):
            field = "scores or probes" if name == "keyed" else name
            yield f"has two entries for the same in the field {field!r}"
    computed = recording_hash(leaves)
    if computed != manifest.hash:
        yield f"states the hash {manifest.hash}, and its leaves hash to {computed}"
    for name in manifest.files:
        if not is_safe_path(name):
            yield f"names the file {name!r:.120}, which lies outside the recording"
    scorers = {None, *(record["name"] for record in raw["scorers"])}
    for pair in (*raw["pairs"], *raw["scores"]):
        dataset, llm = pair["dataset"], pair["llm"]
        if dataset not in manifest.datasets or llm not in manifest.llms:
            yield (
                f"has an entry for {llm!r:.80} on {dataset!r:.80}, and describes no such LLM or"
                " dataset"
            )
        if pair.get("scorer") not in scorers:
            yield f"has scores by {pair['scorer']!r:.80}, and describes no such scorer"
    for part, dataset, llm in manifest.keyed:
        if (dataset, llm) not in manifest.pairs:
            yield f"has {part} of {llm!r:.80} on {dataset!r:.80}, and no CoTs of it"
    parts = {leaf for leaf in leaves if leaf.name == PROBES or leaf.name.startswith(SCORES)}
    for part, dataset, llm in sorted(manifest.keyed.keys() ^ parts, key=str):
        yield (
            f"has {part} of {llm!r:.80} on {dataset!r:.80} among its leaves or among its entries,"
            " and not in both"
        )
    if (found := features((leaf.name for leaf in leaves), manifest.files)) != raw["features"]:
        yield f"states the features {raw['features']}, and lists files and leaves of {found}"


_TIER = re.compile(r":(free|nitro|floor)$")  # OpenRouter's: who serves it, not what
_DATED = re.compile(r"[-@](latest|\d{3,4}|\d{6}|\d{8}|\d{2}-\d{2,4}|\d{4}-\d{2}-\d{2})$")


class AnsweringModels(NamedTuple):
    """The models that answered as one LLM on one dataset.

    Attributes:
        llm, dataset: whose CoTs.
        asked: the model's name in the requests; of imported CoTs that of the LLM.
        names: each name that replies state, and how many CoTs have it.
    """

    llm: str
    dataset: str
    asked: str
    names: Mapping[str, int]

    @property
    def is_other(self) -> bool:
        """Whether several models answered, or another one than was asked; a dated name of the same
        is neither.
        """
        answered = {_bare(name) for name in self.names}
        return len(answered) > 1 or {_undated(name) for name in answered} != {
            _undated(_bare(self.asked))
        }

    @property
    def sentence(self) -> str:
        """What a reader should know."""
        most = sorted(self.names.items(), key=lambda item: (-item[1], item[0]))
        counts = (f"{name:.60} ({count:,} CoT{'s' * (count != 1)})" for name, count in most)
        who = f"{self.llm} on {self.dataset}"
        if not self.is_other:
            return f"{who} was served as {most[0][0]:.60}."
        other = "another model" if len(most) == 1 else "more than one model"
        asked = "" if self.asked == self.llm else f" was asked as {self.asked:.60}, and"
        return f"{who}{asked or ':'} {other} answered, as the replies say: {some(counts)}."


def _bare(name: str) -> str:
    """A model's name without who provides it, in small letters."""
    return _TIER.sub("", name.rsplit("/", maxsplit=1)[-1].casefold())


def _undated(name: str) -> str:
    return _DATED.sub("", name)
