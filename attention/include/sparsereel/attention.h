/* Block-sparse 8-bit attention for C and C++ programs (attention.hpp is a C++ layer over this header).
 *
 *   sparsereel_attention* attention;
 *   sparsereel_attention_create(0, &attention);                    once for each device
 *   sparsereel_attention_call call;
 *   sparsereel_attention_call_init(&call, sizeof call);            sets defaults; then set sizes, tensors and policy
 *   sparsereel_attention_workspace_size(attention, &call, &bytes); once for calls that differ only in their tensors
 *   sparsereel_attention_run(attention, &call, workspace, bytes, stream);
 *
 * A call computes out = softmax(q k^T scale) v; on a GPU both products are in 8 bits. Of q k^T, it computes only the
 * blocks of 64 queries x 64 keys that the policy selects, and drops the others. By default, means replace a dropped
 * block: one mean key and one mean value for each 16 of its keys. More blocks can be dropped if tokens that are
 * neighbors in space and time are also neighbors in the sequence: see sparsereel_token_order().
 *
 * No function prints, ends the process or throws an exception. On a GPU a call only enqueues work: it neither waits for
 * the device nor allocates memory. On a CPU a call returns when the result is complete. It keeps packed keys and values
 * and copies of tensors in the workspace, and allocates memory on the heap while it selects blocks.
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

/* Stands behind the name of each enumeration. In C++ it gives the enumeration the type int, so that a variable of the
 * enumeration may hold any int. The library checks every such value. */
#ifdef __cplusplus
#define SPARSEREEL_INT : int
extern "C" {
#else
#define SPARSEREEL_INT
#endif

typedef enum sparsereel_status SPARSEREEL_INT {
  SPARSEREEL_OK = 0,
  SPARSEREEL_BAD_ARGUMENT = 1,        /* a null pointer, or an impossible size, stride or policy */
  SPARSEREEL_WORKSPACE_TOO_SMALL = 2, /* see sparsereel_attention_workspace_size() */
  SPARSEREEL_UNSUPPORTED = 3,         /* no kernel supports the call's head_dim, element or alignment */
  SPARSEREEL_NO_DEVICE = 4,           /* no such GPU, a GPU below compute capability 8.0, or a build without CUDA */
  SPARSEREEL_TOO_SHORT = 5,           /* so few operations that full attention in 16 bits is faster; nothing was done */
  SPARSEREEL_CUDA_ERROR = 6,          /* CUDA refused a launch */
  SPARSEREEL_EARLIER_CUDA_ERROR = 7,  /* a CUDA call before this one failed */
  SPARSEREEL_OUT_OF_MEMORY = 8,       /* the host is out of memory */
  SPARSEREEL_FAILED = 9               /* any other failure; sparsereel_message() has the cause */
} sparsereel_status;

/* Returns the name of a status, such as "too short". */
SPARSEREEL_API const char* sparsereel_status_name(sparsereel_status status);

/* Returns the cause and the remedy of this thread's last failure (a status other than SPARSEREEL_OK). The text is
 * valid until the next failure. */
SPARSEREEL_API const char* sparsereel_message(void);

/* Returns the version, such as "0.1.0". */
SPARSEREEL_API const char* sparsereel_attention_version(void);

/* Returns 1 if this build contains the CUDA kernels, otherwise 0. */
SPARSEREEL_API int sparsereel_attention_has_cuda(void);

/* -- A device's handle ------------------------------------------------------------------------------------------- */

/* Owns the resources that calls share: streams and events of a GPU, or the threads of a CPU. A program may have any
 * number of handles per device. Threads may share a handle; the calls of one handle are enqueued one after the
 * other. */
typedef struct sparsereel_attention sparsereel_attention;

#define SPARSEREEL_CPU (-1)

/* Creates a handle. device: SPARSEREEL_CPU, or the number of a GPU as CUDA counts them. No function of this header
 * changes the current device. */
SPARSEREEL_API sparsereel_status sparsereel_attention_create(int device, sparsereel_attention** attention);

/* Frees a handle. On a GPU, the calls of the handle must have ended. Null is allowed. */
SPARSEREEL_API void sparsereel_attention_destroy(sparsereel_attention* attention);

/* A function that your program provides. It must call body(body_context, begin, end) for ranges that cover [0, count)
 * exactly once, and return when all these calls are done. context: the pointer that the program gave to
 * sparsereel_attention_set_parallel_for(). */
typedef void (*sparsereel_parallel_for)(void* context, int64_t count,
                                        void (*body)(void* body_context, int64_t begin, int64_t end),
                                        void* body_context);

/* For CPU handles only. set_threads() sets how many threads a call uses, up to 1024; 0, the default, means as many as
 * the machine has. set_parallel_for() makes calls use the program's threads instead. After a fork(), the child process
 * starts library threads of its own. */
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

/* A tensor [batch, tokens, heads, head_dim] in the memory of the handle's device. head_dim is contiguous. The other
 * dimensions may have any order; their strides are in elements. On a GPU each row must be aligned to 16 bytes (`data`
 * is aligned, and strides are multiples of 8), and the token stride must be below 2^31. */
typedef struct sparsereel_tensor {
  void* data;
  int64_t batch_stride, token_stride, head_stride;
} sparsereel_tensor;

/* The rule that selects the key blocks to compute for a tile. A tile is a group of `selection_rows` queries, which
 * share one selection. For masses and predicted errors see sparsereel_ranking. */
typedef enum sparsereel_selection SPARSEREEL_INT {
  SPARSEREEL_TOPK = 0,       /* a fraction of the blocks */
  SPARSEREEL_CDF = 1,        /* the fewest blocks whose masses or predicted errors sum to a given share of the total */
  SPARSEREEL_ERROR = 2,      /* the fewest blocks such that the predicted error of the others is below a bound */
  SPARSEREEL_DENSE = 3,      /* all blocks */
  SPARSEREEL_BLOCK_ERROR = 4 /* blocks whose predicted error is above a bound, and always the block with the largest */
} sparsereel_selection;

/* The replacement of the keys and values of a block that is not computed. */
typedef enum sparsereel_dropped SPARSEREEL_INT {
  SPARSEREEL_MEANS = 0,  /* for each `cell` tokens, one mean key and one mean value with the weight of all of them */
  SPARSEREEL_NOTHING = 1 /* nothing, as published with SpargeAttn */
} sparsereel_dropped;

/* The measure by which blocks are ranked. */
typedef enum sparsereel_ranking SPARSEREEL_INT {
  SPARSEREEL_BY_ERROR = 0, /* the error that is predicted if means replace the block; requires SPARSEREEL_MEANS */
  SPARSEREEL_BY_MASS = 1   /* the block's mass: its share of the softmax of mean queries and mean keys (SpargeAttn) */
} sparsereel_ranking;

typedef struct sparsereel_head_policy {
  sparsereel_selection selection;
  /* Fraction of the blocks to compute, in (0, 1]. If blocks are ranked by mass, each tile computes this fraction of the
   * blocks that it sees. If blocks are ranked by error, all heads and tiles of a batch entry together compute this
   * fraction: the blocks that reduce the error most. If heads have different policies, each head computes its own
   * fraction of its blocks. */
  double topk;
  double cdf; /* share of a tile's total mass or predicted error that the computed blocks hold, in (0, 1] */
  /* Bound on a predicted error, in (0, 1000]. For SPARSEREEL_ERROR it bounds the error of a tile, relative to the mean
   * length of the head's output vectors. For SPARSEREEL_BLOCK_ERROR it bounds the error of each dropped block, relative
   * to the mean length of the output vectors of all heads of a batch entry, or of the head alone if heads have
   * different policies. */
  double error;
  double similarity;   /* blocks whose tokens have a mean cosine similarity below this value are always computed; a
                          negative value turns this off */
  double pv_threshold; /* P.V, the product of the weights and v, is skipped for a block if all its scores lie at least
                          this many log2 units below the largest scores of their queries; 32 or more skips none */
} sparsereel_head_policy;

typedef struct sparsereel_attention_policy {
  sparsereel_head_policy all;          /* the policy of every head, unless `heads` is set */
  const sparsereel_head_policy* heads; /* [heads] in host memory; null if every head uses `all`. Not read after the
                                          function that gets the call has returned */
  sparsereel_dropped dropped;
  sparsereel_ranking ranking;
  int64_t cell;            /* tokens per mean: 16; a CPU also takes 32 and 64 */
  int64_t selection_rows;  /* queries that share a selection: 64, 128 or 192 */
  double dense_operations; /* GPU calls with fewer operations (4 * batch * heads * queries * keys * head_dim) return
                              SPARSEREEL_TOO_SHORT; 0 turns this off */
} sparsereel_attention_policy;

typedef enum sparsereel_norm SPARSEREEL_INT {
  SPARSEREEL_NO_NORM = 0,
  SPARSEREEL_LAYER_NORM = 1,
  SPARSEREEL_RMS_NORM = 2
} sparsereel_norm;

/* A norm and then a rotary embedding, which a call applies to q and k in fp32 before attention. All pointers are to
 * memory of the device. On a GPU, a call with a norm or a rotary embedding needs a head_dim that is a multiple of 16,
 * and weights and biases must be aligned to 16 bytes. */
typedef struct sparsereel_attention_prologue {
  sparsereel_norm norm;
  int across_heads; /* 1: normalize each token over all its heads together; 0: normalize each head alone */
  double eps;       /* added to the variance (layer norm) or to the mean square (RMS norm) */
  const float *q_weight, *q_bias, *k_weight,
      *k_bias; /* [head_dim]; with across_heads [heads of q or of k, head_dim]; null if absent */
  /* Cosines and sines for self-attention, [queries - text_tokens, head_dim] in the order of the tokens. The two
   * channels of a pair have equal entries. The last text_tokens tokens are not rotated. Null if there is no rotary
   * embedding, or if rotary_pairs or rotary_positions define it. */
  const float *rotary_cos, *rotary_sin;
  const void* rotary_pairs; /* GPU only, in place of rotary_cos and rotary_sin: the cosine and sine of each pair, fp16
                               [queries - text_tokens, head_dim / 2, 2]. A GPU call that gets the tables first computes
                               such pairs from them */
  int interleaved;          /* 1: channels 2 i and 2 i + 1 are a pair; 0: channels i and i + head_dim / 2 are a pair */
} sparsereel_attention_prologue;

/* Two optional parts of the prologue of self-attention: norm weights for text tokens, and rotary angles that differ
 * by head. Each of the two requires `interleaved` to be 1 and `across_heads` to be 0. On a GPU every pointer must be
 * aligned to 16 bytes. */
typedef struct sparsereel_attention_parts {
  /* Norm weights [head_dim] of the last text_tokens tokens. They require a norm without biases. If null, these tokens
   * use q_weight and k_weight. */
  const float *text_q_weight, *text_k_weight;
  /* Positions and frequencies, from which rotary angles are computed. Both are null if the call has tables or pairs, or
   * no rotary embedding. Pair i of head h turns by the dot product of a token's position and the frequencies [h, :, i],
   * in radians. Positions are [queries - text_tokens, 4] in the order of the tokens: three coordinates and an unused
   * value. Frequencies are [heads, 3, head_dim / 2]. */
  const float *rotary_positions, *rotary_frequencies;
} sparsereel_attention_parts;

/* The index of each counter of a call. Blocks are 64 x 64, counted over all batch entries and heads. */
enum {
  SPARSEREEL_COUNT_KEPT = 0,       /* blocks computed */
  SPARSEREEL_COUNT_SKIPPED_PV = 1, /* computed blocks whose P.V was skipped */
  SPARSEREEL_COUNT_MEANS = 2,      /* cost of attention to means, as the number of blocks that cost as much */
  SPARSEREEL_COUNT_ERROR = 3,      /* sum of the predicted errors of all tiles, in units of 2^-24; 0 if not predicted */
  SPARSEREEL_COUNTS = 4
};

typedef struct sparsereel_attention_call {
  size_t size; /* size of this struct, set by sparsereel_attention_call_init(). New fields are only added at the end.
                  Fields that are missing in an older program's smaller struct have their defaults */
  sparsereel_element element; /* type of q, k, v and out; a GPU takes fp16 and bf16 */
  int64_t batch, heads, queries, keys;
  int64_t head_dim;          /* 16 to 256; on a GPU a multiple of 8 */
  sparsereel_tensor q, k, v; /* read only */
  sparsereel_tensor out;     /* [batch, queries, heads, head_dim] */
  float* lse;                /* [batch, heads, queries] on the device: natural log of each query's sum of exp(score)
                                over the keys and means that it attends to; null if not wanted */
  double scale;              /* 0 means head_dim^-0.5 */
  int quantized;             /* 1: compute every block, whatever the policy says, and use 8 bits on a CPU too. 0: a CPU
                                computes in fp32 */
  int64_t text_tokens; /* number of text tokens, the last ones of q and k. The blocks of their queries, and those of
                          their keys, are always computed */
  int causal;          /* 1: query i sees only keys up to i + keys - queries */
  const int64_t* key_lengths; /* [batch] on the device: number of keys of each batch entry that are not padding, from 0
                                 to `keys`. Padding comes last. Null if there is no padding */
  sparsereel_attention_policy policy;
  const uint8_t* map; /* [batch, heads, ceil(queries / map_rows), ceil(keys / 64)] on the device; 0 drops a block. A map
                         replaces the policy's selection. text_tokens then only determines which blocks have no means */
  int64_t map_rows;   /* queries that share a row of the map: 64 or 128 */
  sparsereel_attention_prologue prologue;
  uint64_t* counts; /* [SPARSEREEL_COUNTS] on the device: counters that the call adds to; null if not wanted */
  /* The fields below were added later: programs that were compiled without them pass a smaller size. */
  int64_t kv_heads; /* heads of k and v, a divisor of `heads`: heads / kv_heads neighboring heads of q share a head of k
                       and v, which is read, quantized and stored once. 0 means as many as `heads` */
  int64_t arithmetic; /* number of bits in which a GPU multiplies: 8, or 16 in the tensors' type. 16 bits show the error
                         of dropped blocks without the error of 8 bits. 0 means 8. `quantized` requires 8. No effect on
                         a CPU */
  sparsereel_attention_parts parts; /* optional parts of the prologue */
} sparsereel_attention_call;

/* Sets every field to its default. size: sizeof(sparsereel_attention_call) in your program. */
SPARSEREEL_API sparsereel_status sparsereel_attention_call_init(sparsereel_attention_call* call, size_t size);

/* Writes to `bytes` how many bytes of device memory the call needs as workspace, which may have any alignment. The size
 * depends on which optional pointers are set, such as lse, map and those of the prologue. The function reads no device
 * memory, and q, k, v and out may still be null. A call does not need what an earlier call left in the workspace. */
SPARSEREEL_API sparsereel_status sparsereel_attention_workspace_size(sparsereel_attention* attention,
                                                                     const sparsereel_attention_call* call,
                                                                     size_t* bytes);

/* Runs the call on a CPU, or enqueues it on a GPU. workspace: `bytes` bytes of device memory, at least as many as
 * sparsereel_attention_workspace_size() writes. stream: a cudaStream_t of the device; null on a CPU. If the function
 * returns SPARSEREEL_TOO_SHORT, run your own full attention for this call. */
SPARSEREEL_API sparsereel_status sparsereel_attention_run(sparsereel_attention* attention,
                                                          const sparsereel_attention_call* call, void* workspace,
                                                          size_t bytes, void* stream);

/* Writes to `blocks` how many blocks, over all batch entries and heads, hold a query and a key that this query may see.
 * A call that drops no block computes this number of blocks (SPARSEREEL_COUNT_KEPT). Returns SPARSEREEL_UNSUPPORTED for
 * key_lengths on a GPU, because the function does not read the memory of a GPU. */
SPARSEREEL_API sparsereel_status sparsereel_attention_total_blocks(sparsereel_attention* attention,
                                                                   const sparsereel_attention_call* call,
                                                                   int64_t* blocks);

/* Writes to `text` a description of the code that runs the call, such as "cuda int8 Q.K, e4m3 P.V (hopper), means of 16
 * tokens for dropped blocks". The text is cut to `size` bytes, including its terminating 0. */
SPARSEREEL_API sparsereel_status sparsereel_attention_describe(sparsereel_attention* attention,
                                                               const sparsereel_attention_call* call, char* text,
                                                               size_t size);

/* -- Token orders ------------------------------------------------------------------------------------------------ */

typedef enum sparsereel_order SPARSEREEL_INT {
  SPARSEREEL_HILBERT = 0,    /* generalized 3D Hilbert curve, the best order for selecting blocks */
  SPARSEREEL_NATIVE = 1,     /* width fastest, then height, then frames */
  SPARSEREEL_TIME_MAJOR = 2, /* frames fastest, then width, then height */
  SPARSEREEL_MORTON = 3      /* Z-order */
} sparsereel_order;

/* Writes to places[i] the native index (t * height + h) * width + w of the token at position i of the sequence, and to
 * inverse[n] the position of the token with native index n. Both are [frames * height * width] in host memory; either
 * may be null. The library keeps each order in memory until the process ends. Returns SPARSEREEL_BAD_ARGUMENT if a side
 * is below 1 or the grid holds more than 2^31 - 1 tokens. */
SPARSEREEL_API sparsereel_status sparsereel_token_order(sparsereel_order order, int64_t frames, int64_t height,
                                                        int64_t width, int64_t* places, int64_t* inverse);

#ifdef __cplusplus
}
#endif

#endif
