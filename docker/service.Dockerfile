# The service: API, reconciler and migrations in one image; docs/images.md has the commands.
# Any engine builds it from the repository's root; `make images` also does it without one.
# The base is pinned to the byte; docs/images.md says how to move to a newer one.
ARG BASE=debian:12.15-slim@sha256:7c7b2c966bc9ee8cedfeef67e0e279108992c77681fa595db4a9d65c06ccc587

FROM ${BASE} AS python
# tini is PID 1: it reaps, and it makes SIGTERM end even a Python that is still importing.
# `upgrade` brings Debian's fixes since the base was made.
RUN apt-get update \
 && apt-get upgrade --yes \
 && apt-get install --yes --no-install-recommends ca-certificates python3 tini \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/* /var/cache/debconf/* /var/log/* /var/cache/ldconfig/*
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1

FROM python AS build
RUN apt-get update && apt-get install --yes --no-install-recommends python3-pip
COPY docker/service.txt /build/
# Where packages come from is the builder's business: the secret `pip` is a pip.conf, or absent.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python3 -m pip install --no-cache-dir --no-compile --no-deps --require-hashes \
      --only-binary :all: --target /opt/packages --requirement /build/service.txt \
 && PYTHONPATH=/opt/packages python3 -m pip check
# Compiled once, here: nobody may write at run time, and a start would pay for it every time.
RUN python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/packages
COPY trainer/__init__.py /opt/rekindle/trainer/
COPY trainer/contract /opt/rekindle/trainer/contract
COPY trainer/graders/__init__.py trainer/graders/answer.py trainer/graders/final_answer.py \
  trainer/graders/limited.py trainer/graders/multi.py trainer/graders/similarity.py \
  trainer/graders/text.py /opt/rekindle/trainer/graders/
COPY contract /opt/rekindle/contract
COPY rendering /opt/rekindle/rendering
COPY migrations /opt/rekindle/migrations
COPY service /opt/rekindle/service
COPY web/dist /opt/rekindle/web/dist
RUN python3 -m compileall -q --invalidation-mode unchecked-hash /opt/rekindle

FROM python
# No program gives its caller another user's rights: `su` and `mount` of the base would.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent \
      --shell /usr/sbin/nologin rekindle \
 && printf '/opt/%s\n' rekindle packages >/usr/lib/python3/dist-packages/rekindle.pth \
 && find / -xdev -type f -perm /6000 -exec chmod a-s {} +
COPY --from=build /opt/packages /opt/packages
COPY --from=build /opt/rekindle /opt/rekindle
WORKDIR /opt/rekindle
USER 10001:10001
EXPOSE 8080
STOPSIGNAL SIGTERM
# 200 only when the database answers too. A reconciler alone has no port unless it is given one: see compose.yaml.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python3", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/readyz', timeout=4)"]
ENTRYPOINT ["tini", "--", "python3", "-m", "service.main"]
CMD ["all", "--host", "0.0.0.0", "--port", "8080"]
# Last, as they change with every commit and the layers above must not.
ARG BASE
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Rekindle service" \
      org.opencontainers.image.description="API and reconciler of Rekindle" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
