# rlhf_lab on NVIDIA GPUs: training with DeepSpeed or FSDP, and vLLM as generator.
#
#   docker build -f docker/cuda.Dockerfile -t rlhf-lab:cuda .
#   docker run --rm --gpus all --ipc=host -v "$PWD/runs:/lab/runs" rlhf-lab:cuda train generator=vllm mode=async
#
# The wheels of torch and vLLM bring their own CUDA libraries. The compiler of the base image is for
# the operations that DeepSpeed and vLLM compile when they are first used.
FROM nvidia/cuda:13.0.2-devel-ubuntu24.04

ENV PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1 DEBIAN_FRONTEND=noninteractive

# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3.12 python3.12-dev python3.12-venv git \
    && rm -rf /var/lib/apt/lists/* \
    && python3.12 -m venv /opt/venv \
    && useradd --create-home --home-dir /lab --uid 1001 lab

ENV PATH="/opt/venv/bin:$PATH"

WORKDIR /opt/rlhf_lab
COPY pyproject.toml README.md LICENSE ./
COPY conf conf
COPY sweeps sweeps
COPY analysis analysis
COPY src src

# Without constraints.txt: it holds versions beside a CPU build of vLLM.
# hadolint ignore=DL3013
RUN pip install '.[analysis,deepspeed,hub,joblib,judge,lora,math,search,slurm,tensorboard,vllm,wandb]'

USER 1001
WORKDIR /lab
ENTRYPOINT ["rlhf-lab"]
CMD ["--help"]
