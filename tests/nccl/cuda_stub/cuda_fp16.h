/* Empty: NVIDIA's nccl.h includes it and uses nothing of it. */
#ifndef TUTTI_TESTS_CUDA_FP16_H_
#define TUTTI_TESTS_CUDA_FP16_H_
#endif /* TUTTI_TESTS_CUDA_FP16_H_ */
