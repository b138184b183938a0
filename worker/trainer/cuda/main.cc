// trainyard-trainer-cuda is the trainer for NVIDIA's GPUs.
#include "worker/trainer/command_line.h"
#include "worker/trainer/cuda/cuda_support.h"

int main(int argc, char** argv) {
  trainyard::trainer::CudaSupport cuda;
  return trainyard::trainer::RunCommandLine(
      argc, argv, {.name = "trainyard-trainer-cuda", .backend = "cuda", .device = &cuda});
}
