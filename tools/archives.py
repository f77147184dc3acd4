"""Write reproducible .tar.gz files: the same input gives the same bytes."""

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

__all__ = ["write_archive"]


def write_archive(path: Path, files: Mapping[str, Path], epoch: int) -> None:
    """Write files by their names in the archive, with the time `epoch` and without an owner."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(files):
            content = files[name].read_bytes()
            about = tarfile.TarInfo(name)
            about.size, about.mtime = len(content), epoch
            about.mode = 0o755 if files[name].stat().st_mode & 0o100 else 0o644
            archive.addfile(about, io.BytesIO(content))
    path.write_bytes(gzip.compress(packed.getvalue(), mtime=epoch))
