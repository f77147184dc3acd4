# Partita's image, for the operator, the console and the agent in server Pods. It contains Python,
# Partita and the libraries that both need; no package manager, no torch. `make image` builds it with
# docker, podman or buildah.
#
# Python packages are those of requirements/base.txt, checked by hash. Debian packages are the current
# ones of the stable release, so that each build gets the latest security fixes.

FROM debian:trixie-slim AS base
RUN apt-get update \
 && apt-get install --yes --no-install-recommends binutils gcc libc6-dev python3-venv
# The Debian packages that Python needs, and a shell, because programs of the driver may need one.
# base-files names the distribution: NVIDIA's runtime chooses the folder for libraries by it.
RUN mkdir /packages /root-files \
 && cd /packages \
 && apt-get download --quiet --quiet \
      base-files dash libbz2-1.0 libc6 libexpat1 libffi8 libgcc-s1 liblzma5 libpython3.13-minimal \
      libpython3.13-stdlib libssl3t64 libstdc++6 libuuid1 libzstd1 python3.13-minimal zlib1g \
 && for package in *.deb; do dpkg-deb --extract "$package" /root-files; done \
 && cd /root-files \
 && ln --symbolic --force python3.13 usr/bin/python3 \
 && mkdir --parents dev proc run sys tmp var/tmp \
 && chmod 1777 tmp var/tmp \
 && echo 'root:x:0:0:root:/root:/usr/sbin/nologin' >etc/passwd \
 && echo 'partita:x:65532:65532:Partita:/nonexistent:/usr/sbin/nologin' >>etc/passwd \
 && printf 'root:x:0:\npartita:x:65532:\n' >etc/group \
 && find usr/share/doc -type f ! -name copyright -delete \
 && rm -rf usr/share/bash-completion usr/share/binfmts usr/share/info usr/share/lintian \
      usr/share/man usr/share/menu usr/lib/x86_64-linux-gnu/gconv \
      usr/lib/python3.13/pydoc_data usr/lib/python3.13/turtle.py

FROM base AS dependencies
COPY requirements/base.txt /source/requirements/
# The secrets are optional: the certificates of a proxy, and a pip.conf that names another index.
RUN --mount=type=cache,target=/var/cache/pip \
    --mount=type=secret,id=certificates --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    if [ -e /run/secrets/certificates ]; then export PIP_CERT=/run/secrets/certificates; fi \
 && python3 -m venv /opt/build \
 && python3 -m venv --without-pip /opt/partita \
 && /opt/build/bin/pip --python /opt/partita/bin/python install --quiet --no-compile \
      --cache-dir /var/cache/pip --no-deps --require-hashes --only-binary :all: \
      --requirement /source/requirements/base.txt
# Half of the installed files are not needed here: tests, sources, symbols, extensions of CEL that no CRD uses, syntax colours of
# rich, and kubernetes' class for each kind and group, which Partita does not use (see
# partita/kube/client.py).
RUN cp --archive /opt/partita /opt/build-partita \
 && /opt/build/bin/pip --python /opt/partita/bin/python uninstall --quiet --yes \
      hatchling pathspec pluggy tomlkit trove-classifiers \
 && cd /opt/partita/lib/python3.13/site-packages \
 && find . -depth -type d '(' -name tests -o -name test -o -name __pycache__ ')' \
      -exec rm -rf {} + \
 && find . -type f -regex '.*[.]\(a\|c\|h\|pxd\|pyi\|pyx\)' -delete \
 && rm -rf bazel-project numpy/_pyinstaller numpy/f2py \
      cel_expr_python/ext/ext_bindings.* cel_expr_python/ext/ext_encoders.* \
      cel_expr_python/ext/ext_math.* cel_expr_python/ext/ext_proto.* numpy/_core/_simd.* \
 && find kubernetes/client/api kubernetes/client/models kubernetes/aio/client/api \
      kubernetes/aio/client/models -type f ! -name __init__.py -delete \
 && find pygments/lexers -name '*.py' -regextype egrep \
      ! -regex '.*/(__init__|_mapping|data|python|shell|special)[.]py' -delete \
 && find . -name '*.so*' -exec strip --strip-unneeded {} +

FROM dependencies AS partita
COPY pyproject.toml hatch_build.py README.md /source/
COPY policies/partita_policies /source/policies/partita_policies
COPY operator/partita /source/operator/partita
COPY examples /source/examples
RUN cd /source \
 && /opt/build-partita/bin/python -m hatchling build --target wheel --directory /wheels \
 && /opt/build/bin/pip --python /opt/partita/bin/python install --quiet --no-compile --no-deps \
      --no-index --root /partita --prefix /opt/partita /wheels/*.whl
COPY tools/bytecode.py /source/tools/
RUN /opt/partita/bin/python /source/tools/bytecode.py /partita

FROM scratch
COPY --from=base /root-files /
COPY --from=dependencies /opt/partita /opt/partita
COPY --from=partita /partita /
ENV PATH=/opt/partita/bin:/usr/bin
# The user of the operator and the console. The agent's containers set another one: root, with few
# capabilities.
USER 65532:65532
WORKDIR /
ENTRYPOINT ["partita"]
# Where the source code is: pyproject.toml's Repository, from tools/image.sh.
ARG SOURCE
LABEL org.opencontainers.image.source=$SOURCE
