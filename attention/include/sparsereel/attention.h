/* Block-sparse 8-bit attention for programs of their own, in C or C++ (attention.hpp has a layer for C++).
 *
 *   sparsereel_attention* attention;
 *   sparsereel_attention_create(0, &attention);                    once a device and thread
 *   sparsereel_attention_call call;
 *   sparsereel_attention_call_init(&call, sizeof call);            defaults; then sizes, tensors, policy
 *   sparsereel_attention_workspace_size(attention, &call, &bytes); once a kind of call
 *   sparsereel_attention_run(attention, &call, workspace, bytes, stream);
 *
 * A call computes out = softmax(q k^T scale) v, the products in 8 bits on a GPU. It leaves out the blocks of 64 x 64
 * where the policy finds that it can; by default the means of 16 tokens stand for what is left out. That finds most to
 * leave out where tokens that are neighbours in space and time are neighbours in the sequence: see
 * sparsereel_token_order().
 *
 * No function prints, ends the process or lets an exception out. On a GPU a call only enqueues: nothing waits for the
 * device, and no memory is allocated. On a CPU it returns when it is done; keys, values and copies lie in the
 * workspace, what the selection of blocks looks at on the heap.
 */
#ifndef SPARSEREEL_ATTENTION_H
#define SPARSEREEL_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SPARSEREEL_API __attribute__((visibility("default")))
#else
#define SPARSEREEL_API
#endif

/* Behind an enumeration's name: to C++, too, any number may stand in one, and what the library is given is checked. */
#ifdef __cplusplus
#define SPARSEREEL_INT : int
extern "C" {
#else
#define SPARSEREEL_INT
#endif

typedef enum sparsereel_status SPARSEREEL_INT {
  SPARSEREEL_OK = 0,
  SPARSEREEL_BAD_ARGUMENT = 1,        /* a null pointer, a size, stride or policy that cannot be */
  SPARSEREEL_WORKSPACE_TOO_SMALL = 2, /* see sparsereel_attention_workspace_size() */
  SPARSEREEL_UNSUPPORTED = 3,         /* nothing wrong with it, but no kernel does it: head_dim, element, alignment */
  SPARSEREEL_NO_DEVICE = 4,           /* no such GPU, one older than compute capability 8.0, or a build without CUDA */
  SPARSEREEL_TOO_SHORT = 5,          /* so few operations that full attention in 16 bits takes less; nothing was done */
  SPARSEREEL_CUDA_ERROR = 6,         /* CUDA refused a launch */
  SPARSEREEL_EARLIER_CUDA_ERROR = 7, /* likewise, for an error that the program had before this call */
  SPARSEREEL_OUT_OF_MEMORY = 8,      /* of the host */
  SPARSEREEL_FAILED = 9
} sparsereel_status;

/* "too short" and alike. */
SPARSEREEL_API const char* sparsereel_status_name(sparsereel_status status);

/* What the last function of this thread that did not return SPARSEREEL_OK found, and what to do about it; valid until
 * the next such. */
SPARSEREEL_API const char* sparsereel_message(void);

/* "0.1.0" */
SPARSEREEL_API const char* sparsereel_attention_version(void);

/* 1 where this build holds the CUDA kernels. */
SPARSEREEL_API int sparsereel_attention_has_cuda(void);

/* -- A device's handle ------------------------------------------------------------------------------------------- */

/* Owns what calls share: streams and events of a GPU, or the threads of a CPU. As many as wanted, of one device or of
 * several. Threads may share one; the calls of one handle are enqueued one after the other. */
typedef struct sparsereel_attention sparsereel_attention;

#define SPARSEREEL_CPU (-1)

/* device: SPARSEREEL_CPU, or the number of a GPU as CUDA counts them. The current device stays what it is, here and in
 * every other function. */
SPARSEREEL_API sparsereel_status sparsereel_attention_create(int device, sparsereel_attention** attention);

/* The calls of a GPU's handle must have ended. Null is nothing. */
SPARSEREEL_API void sparsereel_attention_destroy(sparsereel_attention* attention);

/* Runs body(body_context, begin, end) over parts of [0, count), all of them once, and returns when they are done. */
typedef void (*sparsereel_parallel_for)(void* context, int64_t count,
                                        void (*body)(void* body_context, int64_t begin, int64_t end),
                                        void* body_context);

/* Of a CPU's handle: how many threads calls use (up to 1024; 0, as at first: the machine's), or who runs them instead,
 * such as the program's own pool. Its own threads are started anew in the child of a fork(). */
SPARSEREEL_API sparsereel_status sparsereel_attention_set_threads(sparsereel_attention* attention, int threads);
SPARSEREEL_API sparsereel_status sparsereel_attention_set_parallel_for(sparsereel_attention* attention,
                                                                       sparsereel_parallel_for parallel_for,
                                                                       void* context);

/* -- A call ------------------------------------------------------------------------------------------------------ */

typedef enum sparsereel_element SPARSEREEL_INT {
  SPARSEREEL_FP32 = 0,
  SPARSEREEL_FP16 = 1,
  SPARSEREEL_BF16 = 2
} sparsereel_element;

/* [batch, tokens, heads, head_dim] with contiguous head_dim, in the memory of the handle's device; strides in elements,
 * so that any order of the first three will do. On a GPU rows start on 16 bytes: data does, and strides are multiples
 * of 8, those of tokens below 2^31. */
typedef struct sparsereel_tensor {
  void* data;
  int64_t batch_stride, token_stride, head_stride;
} sparsereel_tensor;

/* Which key blocks of a query tile are computed. */
typedef enum sparsereel_selection SPARSEREEL_INT {
  SPARSEREEL_TOPK = 0,       /* a fraction of them */
  SPARSEREEL_CDF = 1,        /* the fewest that hold a share of what they are ranked by */
  SPARSEREEL_ERROR = 2,      /* the fewest with which the predicted errors of the others stay below a bound */
  SPARSEREEL_DENSE = 3,      /* all */
  SPARSEREEL_BLOCK_ERROR = 4 /* those whose own predicted error is above a bound, and the one with the largest */
} sparsereel_selection;

/* What stands for the others. */
typedef enum sparsereel_dropped SPARSEREEL_INT {
  SPARSEREEL_MEANS = 0,  /* every `cell` tokens count as one key, their mean, that weighs as much as they do */
  SPARSEREEL_NOTHING = 1 /* as published with SpargeAttn */
} sparsereel_dropped;

/* What blocks are ranked by. */
typedef enum sparsereel_ranking SPARSEREEL_INT {
  SPARSEREEL_BY_ERROR = 0, /* of the means in their place */
  SPARSEREEL_BY_MASS = 1   /* of the softmax of pooled queries and keys, as published */
} sparsereel_ranking;

typedef struct sparsereel_head_policy {
  sparsereel_selection selection;
  /* In (0, 1], of the blocks that the tile sees. By error: of those of all heads and tiles of a batch entry, which go
   * to whom they serve most; of a head where heads have policies that differ. */
  double topk;
  double cdf; /* in (0, 1] */
  /* In (0, 1000]. SPARSEREEL_ERROR: of a tile's output, over the mean length of its head's. SPARSEREEL_BLOCK_ERROR: of
   * what one block adds to it, over the mean length of the outputs of all that topk shares its blocks among. */
  double error;
  double similarity;   /* blocks whose tokens are less alike (mean cosine) are always computed; below 0: off */
  double pv_threshold; /* P.V is skipped where no maximum rose within so many log2 units; from 32 on: never */
} sparsereel_head_policy;

typedef struct sparsereel_attention_policy {
  sparsereel_head_policy all;          /* of every head, unless */
  const sparsereel_head_policy* heads; /* host [heads], copied; null: all are alike */
  sparsereel_dropped dropped;
  sparsereel_ranking ranking;
  int64_t cell;            /* 16; a CPU takes 32 and 64 too */
  int64_t selection_rows;  /* queries that share a selection: 64, 128 or 192 */
  double dense_operations; /* a GPU's calls of fewer, 4 batch heads queries keys head_dim, are SPARSEREEL_TOO_SHORT; 0:
                              none is */
} sparsereel_attention_policy;

typedef enum sparsereel_norm SPARSEREEL_INT {
  SPARSEREEL_NO_NORM = 0,
  SPARSEREEL_LAYER_NORM = 1,
  SPARSEREEL_RMS_NORM = 2
} sparsereel_norm;

/* What is done to q and k first, in fp32: a norm, then a rotary embedding. All pointers are to memory of the device; on
 * a GPU head_dim is a multiple of 16 here, and weights and biases start on 16 bytes. */
typedef struct sparsereel_attention_prologue {
  sparsereel_norm norm;
  int across_heads; /* normalise over heads x head_dim instead of per head */
  double eps;
  const float *q_weight, *q_bias, *k_weight, *k_bias; /* [head_dim], across heads its heads times that; null: none */
  /* Tables [queries - text_tokens, head_dim] of self-attention, in the order of the tokens; the last text_tokens are
   * not rotated. Null: no rotary embedding. The two entries of a pair are equal. */
  const float *rotary_cos, *rotary_sin;
  const void* rotary_pairs; /* instead, on a GPU: fp16 [queries - text_tokens, head_dim / 2, 2], which every call with
                               tables makes of them in its workspace */
  int interleaved;          /* pairs are (2 i, 2 i + 1); 0: (i, i + head_dim / 2) */
} sparsereel_attention_prologue;

/* Where the prologue of self-attention differs by token or by head. Goes with norms per head, or none, and interleaved
 * pairs; on a GPU every pointer starts on 16 bytes. */
typedef struct sparsereel_attention_parts {
  /* [head_dim], of the last text_tokens in place of q_weight and k_weight, without biases; null: they share those. */
  const float *text_q_weight, *text_k_weight;
  /* In place of rotary tables: pair i of head h of a token turns by the product of its position, the first three of
   * [queries - text_tokens, 4] in the order of the tokens, and column i of frequencies [heads, 3, head_dim / 2], in
   * radians. Nulls: none. */
  const float *rotary_positions, *rotary_frequencies;
} sparsereel_attention_parts;

/* What a call counts, in blocks of 64 x 64 of all heads. */
enum {
  SPARSEREEL_COUNT_KEPT = 0,       /* computed */
  SPARSEREEL_COUNT_SKIPPED_PV = 1, /* of these, without P.V */
  SPARSEREEL_COUNT_MEANS = 2,      /* what the means cost */
  SPARSEREEL_COUNT_ERROR = 3,      /* predicted errors of all query tiles, in units of 2^-24 */
  SPARSEREEL_COUNTS = 4
};

typedef struct sparsereel_attention_call {
  size_t size;                /* of this struct, set by sparsereel_attention_call_init(): fields are only added at its
                                 end, and what a program was compiled without has its default */
  sparsereel_element element; /* of q, k, v and out. A GPU takes fp16 and bf16 */
  int64_t batch, heads, queries, keys;
  int64_t head_dim;           /* 16 to 256; on a GPU a multiple of 8 */
  sparsereel_tensor q, k, v;  /* read only */
  sparsereel_tensor out;      /* [batch, queries, heads, head_dim] */
  float* lse;                 /* [batch, heads, queries], natural log of the sum; null: not wanted */
  double scale;               /* 0: head_dim^-0.5 */
  int quantized;              /* 1: every block, whatever the policy says, and in 8 bits on a CPU too, which otherwise
                                 computes in fp32 */
  int64_t text_tokens;        /* the last of q and k: always computed, as keys and as queries */
  int causal;                 /* query i sees keys up to i + keys - queries */
  const int64_t* key_lengths; /* device [batch], each from 0 to `keys`; null: every key counts */
  sparsereel_attention_policy policy;
  const uint8_t* map; /* device [batch, heads, ceil(queries / map_rows), ceil(keys / 64)], 0: leave out. In place of the
                         policy's choice; text_tokens then only says which blocks have means. Null: none */
  int64_t map_rows;   /* 64 or 128 */
  sparsereel_attention_prologue prologue;
  uint64_t* counts; /* device [SPARSEREEL_COUNTS], added to; null: not wanted */
  /* What follows was added to the struct: programs that were compiled without it pass a smaller size. */
  int64_t kv_heads; /* of k and v, a divisor of `heads`: each is shared by heads / kv_heads neighbours of q and out, and
                       read, quantised and kept in the workspace once. 0: as many as heads */
  int64_t arithmetic; /* bits in which a GPU multiplies: 8, or 16, those of its tensors, which tells what leaving blocks
                         out costs from what 8 bits cost; not beside `quantized`. 0: 8. CPUs compute in fp32 */
  sparsereel_attention_parts parts; /* of the prologue */
} sparsereel_attention_call;

/* The defaults of every field; size: sizeof(sparsereel_attention_call), as the program knows it. */
SPARSEREEL_API sparsereel_status sparsereel_attention_call_init(sparsereel_attention_call* call, size_t size);

/* Bytes of device memory that the call needs, of any alignment; whatever its pointers are, so that it can be asked
 * before there are tensors. The content means nothing between calls. */
SPARSEREEL_API sparsereel_status sparsereel_attention_workspace_size(sparsereel_attention* attention,
                                                                     const sparsereel_attention_call* call,
                                                                     size_t* bytes);

/* Enqueues the call; stream: a cudaStream_t of the device, null on a CPU. SPARSEREEL_TOO_SHORT: take your own full
 * attention for this one. */
SPARSEREEL_API sparsereel_status sparsereel_attention_run(sparsereel_attention* attention,
                                                          const sparsereel_attention_call* call, void* workspace,
                                                          size_t bytes, void* stream);

/* Blocks that hold a pair which the masks leave, of all heads: what SPARSEREEL_COUNT_KEPT is a part of. key_lengths of
 * a GPU are not looked at: SPARSEREEL_UNSUPPORTED. */
SPARSEREEL_API sparsereel_status sparsereel_attention_total_blocks(sparsereel_attention* attention,
                                                                   const sparsereel_attention_call* call,
                                                                   int64_t* blocks);

/* What runs the call, such as "cuda int8 Q.K, e4m3 P.V (hopper), means of 16 tokens for dropped blocks"; as much of it
 * as `size` bytes hold, a 0 at the end. */
SPARSEREEL_API sparsereel_status sparsereel_attention_describe(sparsereel_attention* attention,
                                                               const sparsereel_attention_call* call, char* text,
                                                               size_t size);

/* -- Token orders ------------------------------------------------------------------------------------------------ */

typedef enum sparsereel_order SPARSEREEL_INT {
  SPARSEREEL_HILBERT = 0,    /* generalised 3D Hilbert curve: what selections are best at */
  SPARSEREEL_NATIVE = 1,     /* width fastest, then height, then frames */
  SPARSEREEL_TIME_MAJOR = 2, /* frames fastest */
  SPARSEREEL_MORTON = 3
} sparsereel_order;

/* order[i]: the native index (t height + h) width + w of the token at place i of the sequence; inverse[native] = i.
 * Both [frames height width] in host memory, either may be null. The library keeps each order for the life of the
 * process. */
SPARSEREEL_API sparsereel_status sparsereel_token_order(sparsereel_order order, int64_t frames, int64_t height,
                                                        int64_t width, int64_t* places, int64_t* inverse);

#ifdef __cplusplus
}
#endif

#endif
