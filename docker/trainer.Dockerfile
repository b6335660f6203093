# What runs on every node: the supervisor, and under it torchrun and the trainer.
# `--build-arg ACCELERATOR=cpu` makes the variant for machines without a GPU.
# The base is Debian, not a CUDA image: torch's wheels bring their own CUDA, cuDNN and NCCL, and a
# second copy in the base would only be pulled (docs/adr/0010-images.md).
ARG BASE=debian:12.15-slim@sha256:7c7b2c966bc9ee8cedfeef67e0e279108992c77681fa595db4a9d65c06ccc587
ARG ACCELERATOR=cuda

FROM ${BASE} AS python
# tini is PID 1: it reaps what torchrun's workers leave behind once their parents were killed.
# `upgrade` brings Debian's fixes since the base was made.
RUN apt-get update \
 && apt-get upgrade --yes \
 && apt-get install --yes --no-install-recommends ca-certificates python3 tini \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/* /var/cache/debconf/* /var/log/* /var/cache/ldconfig/*
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1

FROM python AS build
ARG ACCELERATOR
RUN apt-get update && apt-get install --yes --no-install-recommends python3-pip
COPY docker/torch-${ACCELERATOR}.txt /build/torch.txt
# Where packages come from is the builder's business: the secret `pip` is a pip.conf, or absent.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python3 -m pip install --no-cache-dir --no-compile --no-deps --require-hashes \
      --only-binary :all: --target /opt/torch --requirement /build/torch.txt
# Headers and tests are of no use where nothing is compiled; tensors are shared by one of bin.
RUN rm -rf /opt/torch/torch/include /opt/torch/torch/test /opt/torch/nvidia/*/include \
 && find /opt/torch/torch/bin /opt/torch/bin -type f ! -name torch_shm_manager -delete
# Compiled once, here: nobody may write at run time, and a node would pay for it at every start.
RUN python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash \
      -x /testing/_internal/ /opt/torch
COPY docker/trainer.txt /build/
# DeepSpeed comes as source only, pure Python as long as no operator is asked for; this old pip builds
# it with the setuptools of Debian, and so with nothing that is not pinned.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    DS_BUILD_OPS=0 python3 -m pip install --no-cache-dir --no-compile --no-deps --require-hashes \
      --only-binary :all: --no-binary deepspeed \
      --target /opt/packages --requirement /build/trainer.txt \
 && PYTHONPATH=/opt/packages:/opt/torch python3 -m pip check \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/packages
COPY rendering /opt/rekindle/rendering
COPY trainer /opt/rekindle/trainer
RUN python3 -m compileall -q --invalidation-mode unchecked-hash /opt/rekindle

FROM python AS runtime-cpu

FROM python AS runtime-cuda
# NCCL opens libibverbs by itself where there is InfiniBand; mlx5 is among the providers.
# The driver's own libraries are the node's: its container toolkit brings them in.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ibverbs-providers libibverbs1 \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/* /var/cache/debconf/* /var/log/* /var/cache/ldconfig/*
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM runtime-${ACCELERATOR}
# service/cloud/cloud_init.py hands the node's configuration and disk to this very number.
# No program gives its caller another user's rights: `su` and `mount` of the base would.
RUN useradd --uid 10001 --user-group --create-home --home-dir /var/lib/rekindle \
      --skel /nonexistent --shell /usr/sbin/nologin rekindle \
 && printf '/opt/%s\n' rekindle packages torch >/usr/lib/python3/dist-packages/rekindle.pth \
 && find / -xdev -type f -perm /6000 -exec chmod a-s {} +
# Layers of their own, the rarely changing ones first: a node pulls them side by side.
COPY --from=build /opt/torch /opt/torch
COPY --from=build /opt/packages /opt/packages
COPY --from=build /opt/rekindle /opt/rekindle
WORKDIR /var/lib/rekindle
USER 10001:10001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python3", "-m", "trainer.supervisor.machine.liveness", "/var/lib/rekindle"]
ENTRYPOINT ["tini", "--", "python3", "-m", "trainer.supervisor"]
# Last, as they change with every commit and the layers above must not.
ARG ACCELERATOR
ARG BASE
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Rekindle trainer (${ACCELERATOR})" \
      org.opencontainers.image.description="Supervisor and trainer of a Rekindle node" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
