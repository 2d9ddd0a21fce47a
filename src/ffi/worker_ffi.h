/* The engine of llama-orch for programs in C and in whatever can call it: load a model, start a
 * generation, take its text piece by piece.
 *
 * Handles are opaque and owned by the library; each is given back once, to the function that the
 * comment of its maker names. Every pointer may be NULL: that is CUDA_ERROR_INVALID_PARAMETER where
 * a value is needed, and nothing at all where something is given back. Texts are UTF-8 and end with
 * NUL. No exception leaves the library. A context and what was made from it belong to one thread at
 * a time.
 *
 * Error codes come back through `error`, which may be NULL; CUDA_OK is written when all is well.
 */
#ifndef LLORCH_WORKER_FFI_H
#define LLORCH_WORKER_FFI_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CudaContext CudaContext;         /* one device */
typedef struct CudaModel CudaModel;             /* weights, tokenizer and cache on it */
typedef struct InferenceResult InferenceResult; /* one generation under way */

enum {
  CUDA_OK = 0,
  CUDA_ERROR_INVALID_DEVICE = 1,        /* there are devices, but none of that number */
  CUDA_ERROR_OUT_OF_MEMORY = 2,         /* of the device, or of the host */
  CUDA_ERROR_MODEL_LOAD_FAILED = 3,     /* no such file, or not one that runs here */
  CUDA_ERROR_INFERENCE_FAILED = 4,      /* the generation ended before its end */
  CUDA_ERROR_INVALID_PARAMETER = 5,     /* NULL, out of range, or longer than the context */
  CUDA_ERROR_KERNEL_LAUNCH_FAILED = 6,  /* the device refuses our code */
  CUDA_ERROR_VRAM_RESIDENCY_FAILED = 7, /* not all of the model is in the device's own memory */
  CUDA_ERROR_DEVICE_NOT_FOUND = 8,      /* no device at all: no card, no driver, no CUDA in here */
  CUDA_ERROR_UNKNOWN = 99
};

/* The host's own processor instead of a card. It is never taken unless it is named. */
#define CUDA_DEVICE_HOST (-1)

/* How many cards there are; 0 also where nobody can say. */
int cuda_get_device_count(void);

/* device: from 0, or CUDA_DEVICE_HOST. NULL on failure. Given back to cuda_destroy. */
CudaContext* cuda_init(int device, int* error);
void cuda_destroy(CudaContext* context);

/* path: a file or folder as worker-orcd's --model takes it. vram_bytes, where it is not NULL, gets
 * what the model takes of the device's memory: 0 on the host. Takes as long as loading takes. The
 * model may outlive its context. Given back to cuda_unload_model. */
CudaModel* cuda_load_model(CudaContext* context, const char* path, uint64_t* vram_bytes,
                           int* error);
/* Ends what still runs on it. */
void cuda_unload_model(CudaModel* model);
uint64_t cuda_model_get_vram_usage(const CudaModel* model);
uint64_t cuda_get_vram_usage(const CudaModel* model); /* the same */

/* max_tokens: 1 to 2048. temperature: 0 (the most probable token) to 2. The same model, device,
 * prompt and numbers give the same text. Several may be under way on one model. Given back to
 * cuda_inference_free. */
InferenceResult* cuda_inference_start(CudaModel* model, const char* prompt, int max_tokens,
                                      float temperature, uint64_t seed, int* error);
/* Waits for the next piece of text: whole characters, never empty; one that does not fit is given
 * in several. size: of text, at least 5 (256 is plenty). index, where it is not NULL, counts the
 * pieces from 0. False at the end (then *error is CUDA_OK) and after a failure (then it is not). */
bool cuda_inference_next_token(InferenceResult* result, char* text, int size, int* index,
                               int* error);
/* Also in the middle: what is not yet computed will not be. */
void cuda_inference_free(InferenceResult* result);

/* Whether weights and cache lie in the device's own memory. On the host they do not. */
bool cuda_check_vram_residency(const CudaModel* model, int* error);
/* Of all models that were loaded from this context and are still there. */
uint64_t cuda_get_process_vram_usage(const CudaContext* context);
/* A device that breaks ends the process with one line on stderr: whoever can ask has a sound one.
 */
bool cuda_check_device_health(const CudaContext* context, int* error);

/* A text for each code, never NULL, never to be freed. */
const char* cuda_error_message(int code);
/* What the last failed call of this thread had to say; "" before any. Valid until the next failure.
 */
const char* cuda_last_error_detail(void);

#ifdef __cplusplus
}
#endif

#endif
