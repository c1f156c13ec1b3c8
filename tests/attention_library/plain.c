/* Uses the library from C: one valid call, and the message about an invalid one. */
#include <sparsereel/attention.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 200, HEADS = 3, DIM = 32, SIZE = TOKENS * HEADS * DIM };

static float q[SIZE], k[SIZE], v[SIZE], out[SIZE];

static int fail(sparsereel_status status) {
  printf("%s: %s\n", sparsereel_status_name(status), sparsereel_message());
  return 1;
}

int main(void) {
  sparsereel_attention* attention = NULL;
  sparsereel_attention_call call;
  sparsereel_status status = sparsereel_attention_create(SPARSEREEL_CPU, &attention);
  size_t bytes = 0;
  void* workspace;
  char text[128];
  int i;
  if (status != SPARSEREEL_OK) return fail(status);
  for (i = 0; i < SIZE; ++i) {
    q[i] = k[i] = (float)(i % 7);
    v[i] = 1;
  }
  status = sparsereel_attention_call_init(&call, sizeof call);
  if (status != SPARSEREEL_OK) return fail(status);
  call.batch = 1;
  call.heads = HEADS;
  call.queries = call.keys = TOKENS;
  call.head_dim = DIM;
  call.q.data = q;
  call.k.data = k;
  call.v.data = v;
  call.out.data = out;
  call.q.token_stride = call.k.token_stride = call.v.token_stride = call.out.token_stride = HEADS * DIM;
  call.q.head_stride = call.k.head_stride = call.v.head_stride = call.out.head_stride = DIM;
  status = sparsereel_attention_workspace_size(attention, &call, &bytes);
  if (status != SPARSEREEL_OK) return fail(status);
  workspace = malloc(bytes);
  status = sparsereel_attention_run(attention, &call, workspace, bytes, NULL);
  if (status != SPARSEREEL_OK) return fail(status);
  sparsereel_attention_describe(attention, &call, text, sizeof text);
  printf("version %s, %s, out %.4f\n", sparsereel_attention_version(), text, out[SIZE - 1]);
  status = sparsereel_attention_run(attention, &call, workspace, bytes - 1, NULL);
  if (status != SPARSEREEL_WORKSPACE_TOO_SMALL) return 1;
  fail(status);
  sparsereel_attention_destroy(attention);
  free(workspace);
  return 0;
}
