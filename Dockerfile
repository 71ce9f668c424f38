# One image for every process: `python -m ingest`, `python -m dispatcher`, `redispatch console|agent|receive|...`.
# Needs nothing of the machine it is built on; docs/deploy.md says how to run it.
ARG BASE=docker.io/library/python:3.11-slim-bookworm

# What runs is made here, at the place it will have: an environment without pip, from the lock with its hashes.
FROM ${BASE} AS build
SHELL ["/bin/sh", "-eu", "-c"]
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY requirements-build.lock requirements-image.lock ./
RUN python -m venv tools \
    && tools/bin/pip install --quiet --require-hashes -r requirements-build.lock \
    && python -m venv --without-pip /opt/redispatch \
    && tools/bin/pip --python /opt/redispatch/bin/python install --quiet \
        --require-hashes --only-binary :all: -r requirements-image.lock
COPY pyproject.toml README.md LICENSE ./
COPY common common
COPY ingest ingest
COPY dispatcher dispatcher
COPY ops ops
RUN tools/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir wheels . \
    && tools/bin/pip --python /opt/redispatch/bin/python install --quiet --no-deps --no-index wheels/*.whl
# Compiled once and for all: the file system it runs on is read-only. By content, so that no file's time matters.
RUN find /opt/redispatch -type d -name tests -prune -exec rm -rf {} + \
    && python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/redispatch/lib

FROM ${BASE}
ARG VERSION=0.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="redispatch" \
      org.opencontainers.image.description="Alerts over HTTP to every destination, at least once, deduplicated" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/redispatch /opt/redispatch
# What is imported of the standard library is compiled too: the base image has it as source alone. And a place for
# large alerts (objects.url), when a volume is mounted there.
RUN /opt/redispatch/bin/python -c "import dispatcher.__main__, ingest.__main__, ops.agent, ops.healthcheck" \
    && /opt/redispatch/bin/python -c "import ops.console.serve, ops.receive, ops.status" \
    && install -d -o 65532 -g 65532 /var/lib/redispatch
ENV PATH=/opt/redispatch/bin:${PATH} \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    REDISPATCH_CONFIG=/etc/redispatch/redispatch.yaml \
    REDISPATCH_LOG=json \
    REDISPATCH_INGEST_LISTEN=0.0.0.0:8080 \
    REDISPATCH_DISPATCHER_LISTEN=0.0.0.0:8081 \
    REDISPATCH_CONSOLE_LISTEN=0.0.0.0:8090
WORKDIR /tmp
USER 65532:65532
EXPOSE 8080 8081 8090
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s --retries=3 CMD ["python", "-m", "ops.healthcheck"]
CMD ["redispatch", "--help"]
