/* What NVIDIA's nccl.h needs of CUDA's headers, for machines that have the one without the others. */
#ifndef TUTTI_TESTS_CUDA_RUNTIME_H_
#define TUTTI_TESTS_CUDA_RUNTIME_H_

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;

#endif /* TUTTI_TESTS_CUDA_RUNTIME_H_ */
