# The serving image, free of torch. Targets: `cpu` (also the default), `gpu`.
#   docker build --target cpu --tag polyhead:cpu .
#   docker run --rm --publish 127.0.0.1:8000:8000 --read-only --tmpfs /tmp polyhead:cpu
# No BuildKit-only syntax, so that the classic builder (DOCKER_BUILDKIT=0) works too. It builds every stage above its
# target, needed or not; this is why the CPU stages come first.

# The packages are those of requirements/ (make lock). The base images are named by tags, which move; to build from one that
# does not, name it by digest: docker buildx imagetools inspect python:3.11-slim prints it, and
#   docker build --build-arg PYTHON_IMAGE=python:3.11-slim@sha256:... --target cpu .
# builds from it (in docker-compose.yml: PYTHON_IMAGE in .env).
ARG PYTHON_IMAGE=python:3.11-slim

# ---- cpu: build --------------------------------------------------------------------------------------------------
FROM ${PYTHON_IMAGE} AS build-cpu
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# The environment has no pip of its own: nothing can be installed into the running container.
RUN python -m venv --without-pip /opt/polyhead
# Dependencies before source: a change of code does not install them again.
COPY pyproject.toml ./
COPY requirements requirements
RUN python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*p['dependencies'], *p['optional-dependencies']['cpu'], *p['optional-dependencies']['pictures'], sep='\n')" > requirements.txt \
    && python -m pip --python /opt/polyhead/bin/python install --constraint requirements/cpu.txt --requirement requirements.txt
COPY README.md LICENSE ./
COPY model model
COPY export export
COPY service service
RUN python -m pip --python /opt/polyhead/bin/python install --no-deps .
COPY bundles /bundles
# COPY keeps the modes of the checkout, which may be private to its owner.
RUN chmod -R a+rX /bundles

# ---- cpu: run ----------------------------------------------------------------------------------------------------
FROM ${PYTHON_IMAGE} AS cpu
RUN useradd --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin polyhead
COPY --from=build-cpu /opt/polyhead /opt/polyhead
COPY --from=build-cpu /bundles /bundles
# The bytecode was compiled when the packages were installed; the file system may be read-only now.
# ONNX Runtime must not report usage to its maker (docs/decisions/0002-no-telemetry.md).
ENV PATH=/opt/polyhead/bin:$PATH ORT_DISABLE_TELEMETRY=1 MPLCONFIGDIR=/tmp/matplotlib PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    POLYHEAD_BUNDLES=/bundles POLYHEAD_HOST=0.0.0.0 POLYHEAD_PORT=8000
# Not a folder that the service can write to, since Python looks for modules in it.
WORKDIR /opt/polyhead
USER polyhead
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=10s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{os.environ[\"POLYHEAD_PORT\"]}/health', timeout=8)"]
ENTRYPOINT ["python", "-m", "service"]

# ---- gpu ---------------------------------------------------------------------------------------------------------
# The CUDA and cuDNN libraries come as Python packages with onnxruntime-gpu[cuda,cudnn], and the driver's from the host by
# NVIDIA's container runtime, so no image of NVIDIA's is needed. Built by the authors, on a base image of their own making
# under the same tag, and run without a GPU: on the CPU it serves, on CUDA it says that there is no driver.
FROM ${PYTHON_IMAGE} AS build-gpu
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
RUN python -m venv --without-pip /opt/polyhead
COPY pyproject.toml ./
COPY requirements requirements
RUN python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*p['dependencies'], *p['optional-dependencies']['gpu'], *p['optional-dependencies']['pictures'], sep='\n')" > requirements.txt \
    && python -m pip --python /opt/polyhead/bin/python install --constraint requirements/gpu.txt --requirement requirements.txt
COPY README.md LICENSE ./
COPY model model
COPY export export
COPY service service
RUN python -m pip --python /opt/polyhead/bin/python install --no-deps .
COPY bundles /bundles
# COPY keeps the modes of the checkout, which may be private to its owner.
RUN chmod -R a+rX /bundles

FROM ${PYTHON_IMAGE} AS gpu
RUN useradd --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin polyhead
COPY --from=build-gpu /opt/polyhead /opt/polyhead
COPY --from=build-gpu /bundles /bundles
# ONNX Runtime must not report usage to its maker (docs/decisions/0002-no-telemetry.md).
ENV PATH=/opt/polyhead/bin:$PATH ORT_DISABLE_TELEMETRY=1 MPLCONFIGDIR=/tmp/matplotlib PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    POLYHEAD_BUNDLES=/bundles POLYHEAD_DEVICE=cuda POLYHEAD_HOST=0.0.0.0 POLYHEAD_PORT=8000
# Not a folder that the service can write to, since Python looks for modules in it.
WORKDIR /opt/polyhead
USER polyhead
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{os.environ[\"POLYHEAD_PORT\"]}/health', timeout=8)"]
ENTRYPOINT ["python", "-m", "service"]

# `docker build .` without a target gives the CPU image.
FROM cpu AS default
