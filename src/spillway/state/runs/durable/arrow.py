"""The durable tier on any other filesystem that pyarrow has, for example HDFS.

A closed file is durable.

Known limitation: pyarrow offers neither exclusive creation nor exclusive rename. `publish` checks the
name, renames the file, and reads it back. Two drivers that publish the same name in the same
milliseconds could both succeed. On such a filesystem, let the cluster manager keep two drivers apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from spillway.state.runs.durable.full import naming_full_disk
from spillway.state.runs.names import partial_name

#: Concurrent deletions. Each takes a round trip, and the filesystem serves other queries too.
_DELETERS = 8


class ArrowDurable:
    """A directory on a filesystem of pyarrow."""

    def __init__(self, location: str, system: fs.FileSystem, root: str) -> None:
        self.location = location
        self.root = root
        self._fs = system

    def write(self, name: str, data: pa.Buffer | bytes) -> None:
        """Writes a new file, durable on return."""
        with naming_full_disk("durable", self.location):
            try:
                self._write(name, data)
            except FileNotFoundError:
                self._fs.create_dir(self._path(name).rpartition("/")[0], recursive=True)
                self._write(name, data)

    def sync(self) -> None:
        """Does nothing: a closed file is durable."""

    def read(self, name: str) -> pa.Buffer | None:
        """Returns the bytes of a file, or None if it is missing."""
        try:
            with self._fs.open_input_file(self._path(name)) as source:
                return source.read_buffer()
        except FileNotFoundError:
            return None

    def publish(self, name: str, data: bytes) -> bool:
        """Writes a whole file; returns False if the name is taken."""
        path = self._path(name)
        if self._fs.get_file_info(path).type != fs.FileType.NotFound:
            return False
        self._fs.move(self._partial(name, data), path)
        return bool(self.read(name) == pa.py_buffer(data))

    def replace(self, name: str, data: bytes) -> None:
        """Writes a whole file; replaces an older one."""
        self._fs.move(self._partial(name, data), self._path(name))

    def delete(self, names: Sequence[str]) -> None:
        """Removes files; a missing file is not an error."""
        with ThreadPoolExecutor(_DELETERS) as pool:
            list(pool.map(self._delete, names))

    def names(self, folder: str) -> list[str]:
        """Returns the names of the files in a folder, sorted."""
        selector = fs.FileSelector(self._path(folder), allow_not_found=True)
        return sorted(
            info.base_name
            for info in self._fs.get_file_info(selector)
            if info.type == fs.FileType.File
        )

    def local_path(self) -> Path | None:
        """Returns None: the directory is not local."""
        return None

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def _partial(self, name: str, data: bytes) -> str:
        partial = partial_name(name)
        self.write(partial, data)
        return self._path(partial)

    def _delete(self, name: str) -> None:
        try:
            self._fs.delete_file(self._path(name))
        except FileNotFoundError:
            return

    def _write(self, name: str, data: pa.Buffer | bytes) -> None:
        with self._fs.open_output_stream(self._path(name)) as out:
            out.write(data)
