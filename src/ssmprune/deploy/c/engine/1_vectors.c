/* ---- Vectors ----
   Outputs are computed in panels of eight. Where the compiler knows GNU's vector types (gcc, clang, zig, on any
   processor) a panel is one or two vectors, elsewhere eight numbers; the same lines serve all of them. */

#define PANEL 8
#if defined(__GNUC__) && defined(__AVX__)
#define LANES 8
#elif defined(__GNUC__) && (defined(__SSE__) || defined(__ARM_NEON) || defined(__ALTIVEC__) || defined(__wasm_simd128__))
#define LANES 4
#else
#define LANES 1
#endif
#define VECTORS (PANEL / LANES) /* of a panel */

#if LANES > 1
typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef float lanes_in_memory __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
#else
typedef float lanes;
typedef float lanes_in_memory;
#endif

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif
#define LOAD(from) (*(const lanes_in_memory *)(from))
#define STORE(to, value) (*(lanes_in_memory *)(to) = (value))

/* How many steps and panels share a register tile: as many sums as there are registers to hold them. */
#if LANES == 8 || (LANES == 4 && defined(__aarch64__))
#define TILE_STEPS 4
#define TILE_PANELS 2
#elif LANES > 1
#define TILE_STEPS 4
#define TILE_PANELS 1
#else
#define TILE_STEPS 2
#define TILE_PANELS 1
#endif
#if LANES > 1
#define STEP_PANELS (LANES / 2) /* of a single step */
#else
#define STEP_PANELS 1
#endif
