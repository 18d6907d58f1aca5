"""A FileIO that takes locations literally. PyIceberg cuts a path at `?` and `#`, and so would read, and delete, another file
than the one other writers named.
"""

from urllib.parse import urlsplit

from pyiceberg.io import PY_IO_IMPL, FileIO, InputFile, OutputFile, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

# where PyIceberg ends a path
CUTS = "?#"


class LiteralFileIO(PyArrowFileIO):
    """Arrow FileIO that takes a path as it is."""

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        """Split into scheme, host and path, to the last character."""
        at = min((place for place in map(location.find, CUTS) if place >= 0), default=len(location))
        scheme, host, path = PyArrowFileIO.parse_location(location[:at], properties)
        if not urlsplit(location[:at]).scheme:
            # a plain path is not cut, but normalized
            return PyArrowFileIO.parse_location(location, properties)
        return scheme, host, path + location[at:]


class ExactFileIO(FileIO):
    """The FileIO that PyIceberg would choose for each location, made literal where possible."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._plain = {name: value for name, value in properties.items() if name != PY_IO_IMPL}
        self._by_scheme: dict[str, FileIO] = {}

    def new_input(self, location: str) -> InputFile:
        return self._of(location).new_input(location)

    def new_output(self, location: str) -> OutputFile:
        return self._of(location).new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Raises FileNotFoundError if it is not there."""
        self._of(location if isinstance(location, str) else location.location).delete(location)

    def is_literal(self, location: str) -> bool:
        """Tell whether a location leads to the very file that it names."""
        return not set(CUTS) & set(location) or isinstance(self._of(location), LiteralFileIO)

    def _of(self, location: str) -> FileIO:
        scheme = location.partition(":")[0] if ":" in location else ""
        if scheme not in self._by_scheme:
            found = load_file_io(self._plain, location)
            self._by_scheme[scheme] = LiteralFileIO(self._plain) if type(found) is PyArrowFileIO else found
        return self._by_scheme[scheme]


def is_literal(io: FileIO, location: str) -> bool:
    return io.is_literal(location) if isinstance(io, ExactFileIO) else not set(CUTS) & set(location)
