"""The entries of one layer, which Keras saves and loads with the layer's weights."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from html import escape
from typing import Any

from keras_tunedconv.core.descriptor import DIRECTIONS
from keras_tunedconv.core.errors import TunedConvError
from keras_tunedconv.core.record import Record
from keras_tunedconv.layers.keras_internals import saveable_base
from keras_tunedconv.tuning import environments, keras_store
from keras_tunedconv.tuning.describe import HEADINGS, cells
from keras_tunedconv.tuning.entries import Entries, Trace
from keras_tunedconv.tuning.merge import outdates
from keras_tunedconv.tuning.schema import encode


class TuningCache(saveable_base()):  # type: ignore[misc, unused-ignore]
    """What is known of a layer's convolutions: `layer.tuning`.

    It is a mapping of three parts, `forward`, `backward_data` and `backward_filter` (also attributes),
    and each part a mapping from a key's canonical text to its `Record`. Where a file brought entries of
    several environments for one key, a part shows the one that this process would use, else that of the
    newest library, else the latest; `records()` gives all.

    Keras saves it as the group `tuning` beside the layer's weights, and nothing when it is empty.
    Loading adds entries and never removes any.

    Args:
        owner: Name of the layer, for messages.

    Example:

    ```python
    for key, record in layer.tuning.forward.items():
        print(record.algorithm, record.time_seconds, record.gain)
    ```
    """

    def __init__(self, owner: str = "") -> None:
        # Saving code reads every attribute and walks lists and dicts, so there is one, and it is neither.
        self._entries = Entries(owner)

    # ---- reading ---------------------------------------------------------------------------------

    @property
    def forward(self) -> Part:
        """Entries of the convolution itself."""
        return Part(self._entries, "forward")

    @property
    def backward_data(self) -> Part:
        """Entries of the gradient of the input."""
        return Part(self._entries, "backward_data")

    @property
    def backward_filter(self) -> Part:
        """Entries of the gradient of the kernel."""
        return Part(self._entries, "backward_filter")

    def __getitem__(self, direction: str) -> Part:
        if direction not in DIRECTIONS:
            raise KeyError(f"The parts are {', '.join(DIRECTIONS)}. Received: {direction!r}")
        return Part(self._entries, direction)

    def __iter__(self) -> Iterator[str]:
        return iter(DIRECTIONS)

    def __len__(self) -> int:
        return len(DIRECTIONS)

    def __contains__(self, direction: object) -> bool:
        return direction in DIRECTIONS

    def keys(self) -> KeysView[str]:
        """Names of the parts."""
        return dict.fromkeys(DIRECTIONS).keys()

    def values(self) -> ValuesView[Part]:
        """The parts."""
        return {direction: self[direction] for direction in DIRECTIONS}.values()

    def items(self) -> ItemsView[str, Part]:
        """Names and parts."""
        return {direction: self[direction] for direction in DIRECTIONS}.items()

    def records(self) -> list[Record]:
        """All entries, of every environment."""
        return self._entries.all()

    def foreign(self) -> list[Record]:
        """The entries of environments other than this process's; they are saved again as they came."""
        here = environments.current()
        return [record for record in self.records() if record.environment not in here]

    def __repr__(self) -> str:
        return _summary(self._entries)

    def _repr_html_(self) -> str:
        parts = "".join(part._repr_html_() for part in self.values())
        return f"<p>{escape(_summary(self._entries))}</p>{parts}"

    # ---- filling ---------------------------------------------------------------------------------

    def note(
        self, *, x_shape: Iterable[Any], kernel_shape: Iterable[Any], dtype: str, **arguments: Any
    ) -> None:
        """Remember what the layer was traced with, so that its entries are found later.

        Args:
            x_shape: Shape of the input; dims that are not numbers yet count as unknown.
            kernel_shape: Shape of the kernel.
            dtype: Dtype of input, kernel and output.
            **arguments: `strides`, `padding`, `dilation_rate` and `data_format` of the convolution.
        """
        self._entries.traces.add(
            (
                ("x_shape", tuple(dim if type(dim) is int else None for dim in x_shape)),
                ("kernel_shape", tuple(kernel_shape)),
                ("dtype", dtype),
                *arguments.items(),
            )
        )

    def calls(self) -> list[dict[str, Any]]:
        """What `note` was called with so far, each once."""
        return [dict(trace) for trace in list(self._entries.traces)]

    def exchange_traces(self, traces: set[Trace]) -> set[Trace]:
        """Replace what the layer was traced with; gives what was there."""
        before, self._entries.traces = self._entries.traces, traces
        return before

    def collect(self) -> int:
        """Take the layer's new entries out of the process's registry.

        Returns:
            How many were new or changed.
        """
        return self._entries.collect()

    def take(self, records: Sequence[Record]) -> int:
        """Add entries, which this process may then run.

        Args:
            records: The entries; those that are known better stay.

        Returns:
            How many are new.
        """
        before = len(self.records())
        self._entries.take(records)
        return len(self.records()) - before

    # ---- saving and loading, called by Keras -------------------------------------------------------

    def save_own_variables(self, store: Any) -> None:
        """Write all entries into a store of Keras's; nothing when there are none."""
        try:
            self.collect()
            records = self.records()
            if records:
                keras_store.write(store, encode(records))
        except (ValueError, TunedConvError) as error:
            self._entries.warn(f"were not saved: {error}", store)

    @property
    def load_own_variables(self) -> Callable[[Any], None]:
        """Take the entries in a store of Keras's in; called with the store.

        The weights load whatever the store holds. Missing where `guard` found that Keras could not open
        the group, so that it does not try.
        """
        if self._entries.unreadable:
            raise AttributeError("load_own_variables")
        return self._entries.load

    def guard(self, store: Any) -> None:
        """Look at the entries' group before Keras opens it; a broken one must not stop the weights.

        Args:
            store: Keras's store, at the layer's own variables.
        """
        fault = keras_store.fault_of_child(store, "tuning")
        self._entries.unreadable = fault is not None
        if fault is not None:
            self._entries.warn(f"were ignored: they cannot be read: {fault}", store)

    def _obj_type(self) -> str:
        # Names the attributes that saving skips; a loss has none of ours and is cheap to make.
        return "Loss"

    def __reduce__(self) -> tuple[Any, ...]:
        self.collect()
        return _restore, (self._entries.owner, self.records(), set(self._entries.traces))


def _restore(owner: str, records: list[Record], traces: set[Trace]) -> TuningCache:
    cache = TuningCache(owner)
    cache._entries.traces.update(traces)
    cache._entries.take(records)
    return cache


class Part(Mapping[str, Record]):
    """One direction of a `TuningCache`: a mapping from a key's canonical text to its `Record`."""

    def __init__(self, entries: Entries, direction: str) -> None:
        self._entries, self._direction = entries, direction

    def _shown(self) -> dict[str, Record]:
        here = environments.current()
        shown: dict[str, Record] = {}
        for record in self._entries.all():
            if record.direction != self._direction:
                continue
            known = shown.get(record.key)
            if known is None or _stands_before(record, known, here):
                shown[record.key] = record
        return shown

    def __getitem__(self, key: str) -> Record:
        return self._shown()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shown())

    def __len__(self) -> int:
        return len(self._shown())

    # Mapping would look each key up anew.
    def keys(self) -> KeysView[str]:
        """Keys of the entries there are now."""
        return self._shown().keys()

    def values(self) -> ValuesView[Record]:
        """The entries there are now."""
        return self._shown().values()

    def items(self) -> ItemsView[str, Record]:
        """Keys and entries there are now."""
        return self._shown().items()

    def __repr__(self) -> str:
        lines = [f"{self._direction}: {len(self)} entries", *(_line(record) for record in self.values())]
        return "\n  ".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in HEADINGS)
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells(record)) + "</tr>"
            for record in self.values()
        )
        return f"<table><caption>{self._direction}</caption><tr>{head}</tr>{rows}</table>"


def _summary(entries: Entries) -> str:
    records = entries.all()
    here = environments.current() if records else frozenset()
    counts = ", ".join(f"{direction} {len(Part(entries, direction))}" for direction in DIRECTIONS)
    foreign = sum(record.environment not in here for record in records)
    others = f", {foreign} of other environments" if foreign else ""
    return f"<TuningCache of {entries.owner!r}: {counts}{others}>"


def _stands_before(record: Record, known: Record, here: frozenset[str]) -> bool:
    ours, other_ours = record.environment in here, known.environment in here
    return outdates(record, known) if ours == other_ours else ours


def _line(record: Record) -> str:
    return " | ".join(cell for cell in cells(record) if cell)
