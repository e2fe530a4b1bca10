"""Which GPUs the CUDA kernels are compiled for."""

import re
from typing import NamedTuple

OLDEST = (7, 5)  # Turing: what the kernels are written for, and what CUDA 13 begins with

# As torch understands them in TORCH_CUDA_ARCH_LIST.
NAMED = {
    "Turing": "7.5+PTX",
    "Ampere": "8.0;8.6+PTX",
    "Ampere+Tegra": "8.7",
    "Ada": "8.9+PTX",
    "Hopper": "9.0+PTX",
    "Blackwell": "10.0;10.3;12.0;12.1+PTX",
    "Blackwell+Tegra": "11.0",
}
TOO_OLD = ("Kepler", "Kepler+Tesla", "Maxwell", "Maxwell+Tegra", "Pascal", "Volta", "Volta+Tegra")


class Architecture(NamedTuple):
    major: int
    minor: int
    variant: str = ""  # "a" or "f": with features that newer GPUs do not promise to keep
    ptx: bool = False  # also as PTX, which the driver compiles for newer GPUs

    def __str__(self):
        return f"{self.major}.{self.minor}{self.variant}{'+PTX' if self.ptx else ''}"

    @property
    def number(self):
        return f"{self.major}{self.minor}"

    @property
    def gencode(self):
        """The option of nvcc."""
        name = f"{self.number}{self.variant}"
        code = f"[sm_{name},compute_{name}]" if self.ptx else f"sm_{name}"
        return f"-gencode=arch=compute_{name},code={code}"


def parse_list(text):
    """The architectures of a TORCH_CUDA_ARCH_LIST."""
    found = []
    for word in re.split(r"[;,\s]+", text.strip("; ,\t\n")):
        if word in TOO_OLD:
            raise SystemExit(_too_old(word))
        for name in NAMED.get(word, word).split(";"):
            match = re.fullmatch(r"(\d+)\.(\d)([af]?)(\+PTX)?", name)
            if match is None:
                raise SystemExit(
                    f"TORCH_CUDA_ARCH_LIST: {name!r} is no architecture. Write numbers such as "
                    f"'8.0;9.0+PTX', or names: {', '.join(NAMED)}."
                )
            major, minor, variant, ptx = match.groups()
            architecture = Architecture(int(major), int(minor), variant, ptx is not None)
            if architecture[:2] < OLDEST:
                raise SystemExit(_too_old(name))
            found.append(architecture)
    return _merged(found)


def of_torch(flags, numbers):
    """The architectures that torch was built for ('sm_80 sm_90 ...'), and PTX of the newest.

    Left out: what is too old for the kernels, and what nvcc, which knows the given numbers ('75',
    '80', ...), cannot compile for. Newer GPUs than those that stay run the PTX.
    """
    words = [re.fullmatch(r"sm_(\d+)(\d)([af]?)", word) for word in flags.split()]
    found = _merged(Architecture(int(w[1]), int(w[2]), w[3]) for w in words if w is not None)
    found = [a for a in found if a[:2] >= OLDEST and a.number in numbers]
    if not found:
        raise SystemExit(
            f"No GPU that torch was built for ({flags!r}) is known to both rotcell and nvcc: "
            "set TORCH_CUDA_ARCH_LIST, for example to '8.0;9.0+PTX', or ROTCELL_CUDA=0."
        )
    return [*found[:-1], found[-1]._replace(ptx=True)]


def check_supported(architectures, numbers, nvcc_version):
    """Refuse what nvcc, which knows the given numbers ('75', '80', ...), cannot compile for."""
    unknown = [str(a) for a in architectures if a.number not in numbers]
    if unknown:
        raise SystemExit(
            f"nvcc {nvcc_version} cannot compile for {', '.join(unknown)}; it knows "
            f"{', '.join(f'{n[:-1]}.{n[-1]}' for n in sorted(numbers, key=int))}. "
            "Set TORCH_CUDA_ARCH_LIST to some of these, or use another CUDA toolkit."
        )


def _too_old(name):
    return f"rotcell's CUDA kernels need compute capability 7.5 (Turing) or newer, not {name}."


def _merged(architectures):
    """Each once, oldest first."""
    with_ptx = {}
    for a in architectures:
        with_ptx[a[:3]] = with_ptx.get(a[:3], False) or a.ptx
    return [Architecture(*key, ptx) for key, ptx in sorted(with_ptx.items())]
