"""Write `crds/` from the models; run by `make crds`."""

from lock import ROOT
from partita.models import crd

if __name__ == "__main__":
    for path in crd.write(ROOT / "crds"):
        print(path.relative_to(ROOT))
