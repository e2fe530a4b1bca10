"""How many processors there are: affinity mask and cgroup quotas."""

import os
import subprocess
import sys

import pytest

import rotcell

_C = pytest.importorskip("rotcell._C")


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


V2 = "0::/outer/inner\n"
V1 = "5:memory:/outer/inner\n4:cpu,cpuacct:/outer/inner\n1:name=systemd:/outer\n"


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        pytest.param(V2, {}, None, id="no files"),
        pytest.param(V2, {"outer/inner/cpu.max": "max 100000\n"}, None, id="v2, no quota"),
        pytest.param(V2, {"outer/inner/cpu.max": "100000 100000\n"}, 1, id="v2, one"),
        pytest.param(V2, {"outer/inner/cpu.max": "250000 100000\n"}, 2, id="v2, whole ones count"),
        pytest.param(V2, {"outer/inner/cpu.max": "50000 100000\n"}, 1, id="v2, never none"),
        pytest.param(
            V2,
            {"outer/inner/cpu.max": "max 100000\n", "outer/cpu.max": "300000 100000\n"},
            3,
            id="v2, of the group around it",
        ),
        pytest.param(
            V2,
            {"outer/inner/cpu.max": "200000 100000\n", "outer/cpu.max": "300000 100000\n"},
            2,
            id="v2, the least",
        ),
        pytest.param(V2, {"cpu.max": "100000 100000\n"}, 1, id="v2, mounted in a container"),
        pytest.param("0::/\n", {"cpu.max": "200000 100000\n"}, 2, id="v2, the root"),
        pytest.param(
            V1,
            {
                "cpu,cpuacct/outer/inner/cpu.cfs_quota_us": "200000\n",
                "cpu,cpuacct/outer/inner/cpu.cfs_period_us": "100000\n",
            },
            2,
            id="v1",
        ),
        pytest.param(
            V1,
            {"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            1,
            id="v1, mounted in a container",
        ),
        pytest.param(
            V1,
            {
                "cpu,cpuacct/outer/inner/cpu.cfs_quota_us": "-1\n",
                "cpu,cpuacct/outer/inner/cpu.cfs_period_us": "100000\n",
            },
            None,
            id="v1, no quota",
        ),
        pytest.param("", {"cpu.max": "100000 100000\n"}, None, id="in no group"),
        pytest.param("nonsense\n0::", {"cpu.max": "100000 100000\n"}, 1, id="odd lines"),
    ],
)
def test_quotas_of_cgroups(tmp_path, membership, files, expected):
    write(tmp_path, files)
    assert _C.cgroup_processors(membership, str(tmp_path)) == expected


def test_there_are_no_more_than_the_affinity_mask_has():
    assert 1 <= rotcell.build_info()["processors"] <= len(os.sched_getaffinity(0))


def test_the_affinity_mask_counts():
    one = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, [{one}]); import rotcell; "
    code += "print(rotcell.build_info()['processors'])"
    command = [sys.executable, "-c", code]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    assert answer.stdout == "1\n"
