# rlhf_lab on CPUs: the demo, tests of one's own parts, and analysis.
#
#   docker build -f docker/cpu.Dockerfile -t rlhf-lab:cpu .
#   docker run --rm -v "$PWD/runs:/lab/runs" rlhf-lab:cpu pipeline experiment=demo mode=async
FROM python:3.11-slim-bookworm

ENV PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1

# The linker of torch's CPU kernels needs OpenMP.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1=12.* \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --home-dir /lab --uid 1001 lab

WORKDIR /opt/rlhf_lab
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY conf conf
COPY sweeps sweeps
COPY analysis analysis
COPY src src

# INDEX: an index with CPU builds of torch makes the image smaller by the CUDA libraries.
ARG INDEX=""
RUN python -m pip install ${INDEX:+--extra-index-url "$INDEX"} -c constraints.txt \
    '.[analysis,hub,joblib,judge,lora,math,search,tensorboard,wandb]'

USER 1001
WORKDIR /lab
ENTRYPOINT ["rlhf-lab"]
CMD ["--help"]
