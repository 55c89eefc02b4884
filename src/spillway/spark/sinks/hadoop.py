"""A directory on any filesystem that Spark can reach, through Hadoop's FileSystem over py4j.

All names are relative to the directory and use "/". Each call makes one or two requests to the
filesystem; `files_in` makes one per directory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from spillway.errors import QueryError, StateError
from spillway.spark.sinks.refusal import JVM_ERRORS, any_failure, reason_of
from spillway.state.runs.durable.syncing import sync_files, sync_folders

_GLOB_CHARACTERS = re.compile(r"([\\*?\[\]{},^])")


@dataclass(frozen=True)
class FileName:
    """A file below a directory."""

    name: str
    length_bytes: int

    @property
    def folder(self) -> str:
        """The directories above the file, "" when it is at the top."""
        return self.name.rpartition("/")[0]

    @property
    def base(self) -> str:
        """The name without directories."""
        return self.name.rpartition("/")[2]


class HadoopDirectory:
    """The directory `path`; options such as credentials count as Hadoop settings, as in Spark."""

    def __init__(self, spark: SparkSession, path: str, options: Mapping[str, str]) -> None:
        jvm: Any = spark._jvm
        self._path_class = jvm.org.apache.hadoop.fs.Path
        self._jvm = jvm
        conf = spark._jsparkSession.sessionState().newHadoopConf()
        for name, value in options.items():
            conf.set(name, value)
        with any_failure(
            f"Spark cannot reach the path {path!r}",
            hint="check its scheme; add the package of a filesystem that is not part of Spark",
        ):
            given = self._path_class(path)
            self._fs = given.getFileSystem(conf)
            self._root = self._fs.makeQualified(given)
        self._conf = conf

    def __str__(self) -> str:
        return str(self._root.toString())

    @property
    def scheme(self) -> str:
        """The scheme of the filesystem, such as "file" or "s3a"."""
        return str(self._root.toUri().getScheme())

    def uri(self, name: str) -> str:
        """The full name of `name`, for Spark."""
        return str(self._at(name).toString())

    def is_file(self, name: str = "") -> bool:
        """Whether there is a file, not a directory, of this name."""
        path = self._at(name)
        return bool(self._fs.exists(path)) and not self._fs.getFileStatus(path).isDirectory()

    def exists(self, name: str = "") -> bool:
        """Whether there is anything of this name."""
        return bool(self._fs.exists(self._at(name)))

    def files_in(self, name: str) -> list[FileName]:
        """All files below the directory `name`, by names relative to it."""
        # listFiles needs one call, but it also reads the owner and blocks of each file. On the local
        # filesystem that starts a process per file: 7 ms a file instead of 1.
        top = len(self._plain(self._at(name))) + 1
        found, waiting = [], [self._at(name)]
        while waiting:
            for status in self._fs.listStatus(waiting.pop()):
                if status.isDirectory():
                    waiting.append(status.getPath())
                else:
                    found.append(FileName(self._plain(status.getPath())[top:], status.getLen()))
        return found

    def matching(self, pattern: str) -> list[str]:
        """The names that match a glob pattern; the JVM does the filtering."""
        top = self._plain(self._root)
        matches = self._fs.globStatus(self._path_class(f"{escape_glob(top)}/{pattern}"))
        return [self._plain(status.getPath())[len(top) + 1 :] for status in matches or ()]

    def make(self, name: str) -> None:
        """Makes the directory `name` and its parents if they are missing."""
        self._fs.mkdirs(self._at(name))

    def move(self, source: str, target: str) -> None:
        """Renames a file; an object store copies it."""
        # Hadoop's filesystems differ: some return False where others raise.
        detail = None
        try:
            moved = self._fs.rename(self._at(source), self._at(target))
        except JVM_ERRORS as error:
            moved, detail = False, reason_of(error)
        if not moved:
            raise QueryError(
                f"{self}: the query cannot move the file {source} to {target}",
                detail=detail,
                hint="check the write permission of the directory, then start the query again",
            )

    def appear(self, source: str, target: str) -> None:
        """Renames a directory in one step; does nothing if there is one of the new name already."""
        jvm: Any = self._jvm
        context = jvm.org.apache.hadoop.fs.FileContext.getFileContext(
            self._root.toUri(), self._conf
        )
        none = jvm.java.lang.reflect.Array.newInstance(
            jvm.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename"), 0
        )
        try:
            # Unlike a plain rename, this one never moves into a directory that exists.
            context.rename(self._at(source), self._at(target), none)
        except JVM_ERRORS as error:
            if self.exists(target):
                return
            raise QueryError(
                f"{self}: the query cannot rename the directory {source} to {target}",
                detail=reason_of(error),
                hint="check the write permission of the directory, then start the query again",
            ) from error

    def sync(self, names: Sequence[str]) -> None:
        """Makes files durable, with the directories that lead to them, if the filesystem is local.

        Elsewhere a closed file is durable.
        """
        if self._root.toUri().getScheme() != "file":
            return
        root = self._plain(self._root)
        files = [f"{root}/{name}" for name in names]
        folders = {os.path.dirname(root), root}
        for name in names:
            parts = name.split("/")[:-1]
            folders |= {"/".join((root, *parts[: at + 1])) for at in range(len(parts))}
        try:
            # Hadoop keeps a checksum next to each file.
            sync_files([*files, *(_checksum_of(path) for path in files)])
            sync_folders(sorted(folders))
        except OSError as problem:
            raise StateError(
                f"{self} did not confirm that written files are on disk",
                detail=f"{problem.strerror or problem}; the batch is not committed",
                hint="check the disk and the system log, then start the query again",
            ) from problem

    def delete(self, name: str) -> None:
        """Deletes a file or a directory with its content, if it exists."""
        self._fs.delete(self._at(name), True)

    def _at(self, name: str) -> Any:
        return self._path_class(self._root, name) if name else self._root

    @staticmethod
    def _plain(path: Any) -> str:
        # Without scheme and host: a listing may spell them differently from the given path.
        return str(path.toUri().getPath()).rstrip("/")


def _checksum_of(path: str) -> str:
    folder, _, base = path.rpartition("/")
    return f"{folder}/.{base}.crc"


def escape_glob(text: str) -> str:
    r"""A glob pattern that matches only this text.

    Example:
        >>> escape_glob("out[1]/*")
        'out\\[1\\]/\\*'
    """
    return _GLOB_CHARACTERS.sub(r"\\\1", text)
