"""What is free by each limit, from made-up trees of /proc and /sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillway.capacity import Free, free_memory
from spillway.policies.local.spare import LEAST_BYTES, Room, Spare, spare_memory

MIB, GIB = 1 << 20, 1 << 30
CONTAINER, MACHINE = "the memory limit of the container", "the memory of the machine"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


def found(root: Path, tmp_path: Path) -> dict[str, int]:
    """The least for each source, without the room of the directory, which is real."""
    least: dict[str, int] = {}
    for one in free_memory(tmp_path / "missing" / "memory", root):
        least[one.source] = min(one.bytes, least.get(one.source, one.bytes))
    assert least.pop(f"the size of {tmp_path}") > 0
    return least


def test_version_2_counts_every_level_and_reclaimable_cache(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/pods/pod1/box"
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pods/pod1/box",
            f"{group}/memory.max": "max",
            f"{group}/memory.current": str(GIB),
            "sys/fs/cgroup/pods/pod1/memory.max": str(4 * GIB),
            "sys/fs/cgroup/pods/pod1/memory.current": str(3 * GIB),
            "sys/fs/cgroup/pods/pod1/memory.stat": f"anon 5\ninactive_file {512 * MIB}\nfile 9",
            "sys/fs/cgroup/pods/memory.max": str(64 * GIB),
            "sys/fs/cgroup/pods/memory.current": str(GIB),
            "proc/meminfo": f"MemTotal: {99 << 20} kB\nMemAvailable: {32 << 20} kB",
        },
    )
    assert found(root, tmp_path) == {CONTAINER: GIB + 512 * MIB, MACHINE: 32 * GIB}


def test_version_1_is_read_where_a_container_sees_it(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/memory"
    root = tree(
        tmp_path,
        {
            # The path is that of the host; in the container its own group is the top.
            "proc/self/cgroup": "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/",
            f"{group}/memory.limit_in_bytes": str(2 * GIB),
            f"{group}/memory.usage_in_bytes": str(GIB),
            f"{group}/memory.stat": f"inactive_file 7\ntotal_inactive_file {100 * MIB}",
        },
    )
    assert found(root, tmp_path) == {CONTAINER: GIB + 100 * MIB}


@pytest.mark.parametrize("limit", ["max", "9223372036854771712", "", "nonsense"])
def test_group_without_a_limit_does_not_count(tmp_path: Path, limit: str) -> None:
    one, two = ("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")
    files = {"proc/self/cgroup": "4:memory:/\n0::/", "proc/meminfo": "MemAvailable: 1024 kB"}
    for names, top in ((one, "sys/fs/cgroup"), (two, "sys/fs/cgroup/memory")):
        files |= {f"{top}/{names[0]}": limit, f"{top}/{names[1]}": "5"}
    assert found(tree(tmp_path, files), tmp_path) == {MACHINE: MIB}


def test_group_above_its_limit_has_nothing_free(tmp_path: Path) -> None:
    files = {"memory.max": "10", "memory.current": "30"}
    files = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    root = tree(tmp_path, {"proc/self/cgroup": "0::/"} | files)
    assert found(root, tmp_path) == {CONTAINER: 0}


def test_system_without_these_files_has_the_room_of_the_directory(tmp_path: Path) -> None:
    assert found(tmp_path, tmp_path) == {}


def test_slots_share_half_of_what_the_narrowest_limit_leaves() -> None:
    free = (Free(8 * GIB, MACHINE), Free(5 * GIB, CONTAINER))
    spare = spare_memory([Room(free, reserved_bytes=GIB)], slots=4)
    assert spare == Spare(
        2 * GIB,
        "half of what the memory limit of the container leaves (5120 MiB free at the start), for "
        "4 slots on the host",
    )
    assert spare.limit_of(4) == 512 * MIB
    assert spare.limit_of(8) == 256 * MIB


def test_host_with_the_least_room_for_a_slot_decides() -> None:
    wide, narrow = (Free(64 * GIB, MACHINE),), (Free(4 * GIB, MACHINE),)
    # Two of three executors, so four of six slots, are on the narrow host.
    spare = spare_memory([Room(wide, 0, 1), Room(narrow, 0, 2), Room((), 0, 0)], slots=6, stages=2)
    assert spare is not None
    assert spare.limit_of(6) == 256 * MIB
    assert spare.reason.endswith("for 4 slots on the host in each of 2 stages")


def test_slot_gets_the_least_that_makes_sense_where_nothing_is_free() -> None:
    spare = spare_memory([Room((Free(0, MACHINE),), GIB)], slots=3)
    assert spare is not None
    assert spare.limit_of(3) == LEAST_BYTES == spare.limit_of(1000)


def test_unknown_memory_gives_no_limit() -> None:
    assert spare_memory([Room(())], slots=3) is None
