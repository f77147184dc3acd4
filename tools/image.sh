#!/bin/sh
# Build Partita's image with the container engine of this machine; run by `make image`.
# Arguments are passed to the engine's build, such as --no-cache.
#
#   IMAGE     name of the image; by default partita:<version>
#   ARCHIVE   file that it is written to besides; by default build/image.tar
#   FORMAT    docker (by default) or oci: an archive of an OCI image layout; docker writes both in one
#   ENGINE    docker, podman or buildah; by default the first of them that is installed
#   PIP_CERT, PIP_CONFIG_FILE   as pip reads them: certificates of a proxy, and another index
set -eu
cd "$(dirname "$0")/.."

version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' operator/partita/__init__.py)
image=${IMAGE:-partita:$version}
case $image in # podman and buildah would put a plain name below localhost/; Kubernetes looks here
    */*) ;;
    *) image=docker.io/library/$image ;;
esac

engine=${ENGINE:-}
for found in docker podman buildah; do
    [ -n "$engine" ] || { command -v $found >/dev/null && engine=$found; } || true
done
if [ -z "$engine" ]; then
    echo 'Error: `make image` needs docker, podman or buildah, and none of them is installed.' >&2
    echo 'On Debian and Ubuntu: apt-get install buildah' >&2
    exit 1
fi
command -v "$engine" >/dev/null || { echo "Error: ENGINE=$engine is not installed." >&2; exit 1; }

# One date for all files and all commits, so that two builds of one commit are the same image:
# engines reuse a layer of an earlier build whatever date its files have.
epoch=0
source=$(sed -n 's/^Repository = "\(.*\)"$/\1/p' pyproject.toml)
set -- --tag "$image" --build-arg "SOURCE=$source" "$@"
[ -z "${PIP_CERT:-}" ] || set -- "$@" --secret "id=certificates,src=$PIP_CERT"
[ -z "${PIP_CONFIG_FILE:-}" ] || set -- "$@" --secret "id=pip.conf,src=$PIP_CONFIG_FILE"
archive=${ARCHIVE:-build/image.tar}
format=${FORMAT:-docker}-archive
mkdir -p "$(dirname "$archive")"
rm -f "$archive"
case ${engine##*/} in
    docker)
        DOCKER_BUILDKIT=1 docker build --build-arg SOURCE_DATE_EPOCH="$epoch" "$@" .
        docker save --output "$archive" "$image"
        ;;
    podman)
        podman build --timestamp "$epoch" "$@" .
        podman save --quiet --format "$format" --output "$archive" "$image"
        ;;
    buildah)
        buildah build --layers --timestamp "$epoch" "$@" .
        buildah push --quiet "$image" "$format:$archive:$image"
        ;;
    *)
        echo "Error: ENGINE is $engine; write docker, podman or buildah." >&2
        exit 1
        ;;
esac

cat <<END

Built $image, and wrote it to $archive.
Next, give it to the cluster, with one of these:
  kind       kind load image-archive $archive
  k3s        sudo k3s ctr images import $archive
  minikube   minikube image load $archive
  registry   make image IMAGE=registry.example.com/partita:$version
             $engine push registry.example.com/partita:$version
Then install Partita: kubectl apply -k manifests/overlays/single-node
docs/how-to/install.md has the details.
END
