/* Uses the library as a program in C would. On the host's processor, or on a card where
 * LLORCH_FFI_DEVICE names one: worker_ffi_test MODEL */
#include "ffi/worker_ffi.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

static void expect(int is_right, const char* what, int line) {
  if (is_right) return;
  ++failures;
  fprintf(stderr, "line %d: not so: %s (last: %s)\n", line, what, cuda_last_error_detail());
}
#define EXPECT(condition) expect((condition) ? 1 : 0, #condition, __LINE__)

enum { TEXT_MAX = 8192 };

/* The whole answer in `out`, by way of a buffer of `size`; how many pieces it came in. */
static int read_all(InferenceResult* result, int size, char* out) {
  char piece[256];
  int index = -1;
  int error = -1;
  int count = 0;
  size_t length = 0;
  out[0] = '\0';
  while (cuda_inference_next_token(result, piece, size, &index, &error)) {
    EXPECT(error == CUDA_OK);
    EXPECT(index == count);
    EXPECT(piece[0] != '\0');
    EXPECT(strlen(piece) < (size_t)size);
    ++count;
    const size_t bytes = strlen(piece);
    if (length + bytes + 1 >= TEXT_MAX) continue;
    memcpy(out + length, piece, bytes + 1);
    length += bytes;
  }
  EXPECT(error == CUDA_OK);
  return count;
}

static void test_nothing_is_not_dereferenced(void) {
  int error = 0;
  char text[256];
  cuda_destroy(NULL);
  cuda_unload_model(NULL);
  cuda_inference_free(NULL);
  EXPECT(cuda_load_model(NULL, "x", NULL, &error) == NULL);
  EXPECT(error == CUDA_ERROR_INVALID_PARAMETER);
  EXPECT(cuda_load_model(NULL, "x", NULL, NULL) == NULL);
  EXPECT(cuda_inference_start(NULL, "x", 1, 0, 1, &error) == NULL);
  EXPECT(error == CUDA_ERROR_INVALID_PARAMETER);
  EXPECT(!cuda_inference_next_token(NULL, text, 256, NULL, &error));
  EXPECT(error == CUDA_ERROR_INVALID_PARAMETER);
  EXPECT(!cuda_check_vram_residency(NULL, &error) && error == CUDA_ERROR_INVALID_PARAMETER);
  EXPECT(!cuda_check_device_health(NULL, &error) && error == CUDA_ERROR_INVALID_PARAMETER);
  EXPECT(cuda_model_get_vram_usage(NULL) == 0);
  EXPECT(cuda_get_vram_usage(NULL) == 0);
  EXPECT(cuda_get_process_vram_usage(NULL) == 0);
}

static void test_devices_that_are_not_there(void) {
  int error = 0;
  const int count = cuda_get_device_count();
  EXPECT(count >= 0);
  EXPECT(cuda_init(-2, &error) == NULL);
  EXPECT(error == CUDA_ERROR_INVALID_DEVICE);
  EXPECT(cuda_init(count, &error) == NULL);
  EXPECT(error == (count == 0 ? CUDA_ERROR_DEVICE_NOT_FOUND : CUDA_ERROR_INVALID_DEVICE));
  EXPECT(strlen(cuda_last_error_detail()) > 0);
  EXPECT(cuda_init(count, NULL) == NULL);
}

static void test_every_code_has_a_text(void) {
  const int codes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 99, -1, 12345};
  for (size_t i = 0; i < sizeof codes / sizeof codes[0]; ++i) {
    const char* text = cuda_error_message(codes[i]);
    EXPECT(text != NULL);
    if (text == NULL) continue;
    EXPECT(strlen(text) > 0);
    for (size_t other = 0; other < i && i < 10; ++other)
      EXPECT(strcmp(text, cuda_error_message(codes[other])) != 0);
  }
}

static void test_models_that_do_not_load(CudaContext* context) {
  int error = 0;
  EXPECT(cuda_load_model(context, NULL, NULL, &error) == NULL);
  EXPECT(error == CUDA_ERROR_INVALID_PARAMETER);
  EXPECT(cuda_load_model(context, "/no/such/model.gguf", NULL, &error) == NULL);
  EXPECT(error == CUDA_ERROR_MODEL_LOAD_FAILED);
  EXPECT(strstr(cuda_last_error_detail(), "/no/such/model.gguf") != NULL);
  EXPECT(cuda_load_model(context, "README.md", NULL, &error) == NULL);
  EXPECT(error == CUDA_ERROR_MODEL_LOAD_FAILED);
}

static void test_parameters(CudaModel* model) {
  int error = 0;
  EXPECT(cuda_inference_start(model, NULL, 8, 0, 1, &error) == NULL && error == 5);
  EXPECT(cuda_inference_start(model, "", 8, 0, 1, &error) == NULL && error == 5);
  EXPECT(cuda_inference_start(model, "\xff", 8, 0, 1, &error) == NULL && error == 5);
  EXPECT(cuda_inference_start(model, "x", 0, 0, 1, &error) == NULL && error == 5);
  EXPECT(cuda_inference_start(model, "x", 2049, 0, 1, &error) == NULL && error == 5);
  EXPECT(cuda_inference_start(model, "x", 8, -0.1F, 1, &error) == NULL && error == 5);
  EXPECT(cuda_inference_start(model, "x", 8, 2.1F, 1, &error) == NULL && error == 5);
  EXPECT(cuda_inference_start(model, "x", 8, NAN, 1, &error) == NULL && error == 5);
  /* Within its range, but more than this model's context of 1024. */
  EXPECT(cuda_inference_start(model, "x", 2048, 0, 1, &error) == NULL && error == 5);
  EXPECT(cuda_inference_start(model, "x", 2048, 0, 1, NULL) == NULL);
}

static void test_generations(CudaModel* model) {
  static char first[TEXT_MAX], again[TEXT_MAX], narrow[TEXT_MAX], drawn[TEXT_MAX];
  int error = 0;
  const char* prompt = "Once upon a time";
  InferenceResult* a = cuda_inference_start(model, prompt, 24, 0, 1, &error);
  InferenceResult* b = cuda_inference_start(model, prompt, 24, 0, 2, &error);
  InferenceResult* c = cuda_inference_start(model, prompt, 24, 0, 3, NULL);
  EXPECT(a != NULL && b != NULL && c != NULL && error == CUDA_OK);
  const int pieces = read_all(a, 256, first);
  EXPECT(pieces >= 12 && pieces <= 25);
  EXPECT(strlen(first) > 20);
  read_all(b, 256, again);
  EXPECT(strcmp(first, again) == 0);
  EXPECT(read_all(c, 5, narrow) > pieces);
  EXPECT(strcmp(first, narrow) == 0);
  /* The end stays the end. */
  char text[16];
  EXPECT(!cuda_inference_next_token(a, text, 16, NULL, &error) && error == CUDA_OK);
  EXPECT(!cuda_inference_next_token(a, text, 4, NULL, &error) && error == 5);
  EXPECT(!cuda_inference_next_token(a, NULL, 16, NULL, &error) && error == 5);
  cuda_inference_free(a);
  cuda_inference_free(b);
  cuda_inference_free(c);

  InferenceResult* hot = cuda_inference_start(model, prompt, 24, 1.5F, 11, &error);
  read_all(hot, 256, first);
  cuda_inference_free(hot);
  hot = cuda_inference_start(model, prompt, 24, 1.5F, 11, &error);
  read_all(hot, 256, again);
  cuda_inference_free(hot);
  hot = cuda_inference_start(model, prompt, 24, 1.5F, 12, &error);
  read_all(hot, 256, drawn);
  cuda_inference_free(hot);
  EXPECT(strcmp(first, again) == 0);
  EXPECT(strcmp(first, drawn) != 0);

  /* One that is given back in the middle, and one whose model goes first. */
  InferenceResult* left = cuda_inference_start(model, prompt, 800, 1, 5, &error);
  EXPECT(cuda_inference_next_token(left, text, 16, NULL, &error));
  cuda_inference_free(left);
}

static void test_a_result_outlives_its_model(CudaModel* model) {
  int error = 0;
  int pieces = 0;
  char text[256];
  InferenceResult* result = cuda_inference_start(model, "One day", 900, 1, 5, &error);
  EXPECT(result != NULL);
  cuda_unload_model(model);
  while (cuda_inference_next_token(result, text, 256, NULL, &error)) ++pieces;
  EXPECT(error == CUDA_ERROR_INFERENCE_FAILED || pieces > 0);
  cuda_inference_free(result);
}

int main(int argc, char** argv) {
  int error = -1;
  uint64_t vram = 77;
  const char* named = getenv("LLORCH_FFI_DEVICE");
  const int device = named != NULL ? atoi(named) : CUDA_DEVICE_HOST;
  if (argc != 2) return 2;
  test_nothing_is_not_dereferenced();
  test_devices_that_are_not_there();
  test_every_code_has_a_text();
  CudaContext* context = cuda_init(device, &error);
  EXPECT(context != NULL && error == CUDA_OK);
  if (context == NULL) return 1;
  EXPECT(cuda_check_device_health(context, &error) && error == CUDA_OK);
  test_models_that_do_not_load(context);
  CudaModel* model = cuda_load_model(context, argv[1], &vram, &error);
  EXPECT(model != NULL && error == CUDA_OK);
  if (model == NULL) return 1;
  EXPECT((vram > 0) == (device >= 0));
  EXPECT(vram == cuda_get_vram_usage(model) && vram == cuda_get_process_vram_usage(context));
  EXPECT(cuda_check_vram_residency(model, &error) == (device >= 0));
  EXPECT(error == (device >= 0 ? CUDA_OK : CUDA_ERROR_VRAM_RESIDENCY_FAILED));
  test_parameters(model);
  test_generations(model);
  test_a_result_outlives_its_model(model);
  EXPECT(cuda_get_process_vram_usage(context) == 0);
  cuda_destroy(context);
  if (failures == 0) printf("all of it is so\n");
  return failures == 0 ? 0 : 1;
}
