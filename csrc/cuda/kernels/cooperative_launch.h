// Launches of the cooperative kernels: how blocks exchange results follows from the
// path.
#pragma once

#include "cuda/kernels/cooperative.h"
#include "cuda/kernels/in_cluster.h"
#include "cuda/kernels/launchers.h"

namespace rotcell::cuda {

ROTCELL_INLINE bool at_chunk(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % Tiles::kChunkBytes == 0;
}

// Rows of what the matmuls multiply, and the gates among them, must begin at chunks.
inline Staging staging_of(const Request& request, const Forward& p) {
  const int64_t elements = Tiles::kChunkBytes / storage_bytes(request.number);
  const bool aligned = at_chunk(p.out) && at_chunk(p.h0) && at_chunk(p.second_operand);
  return aligned && p.hidden % elements == 0 ? Staging::kByChunks : Staging::kByElements;
}
inline Staging staging_of(const Request& request, const Backward& p) {
  const int64_t elements = Tiles::kChunkBytes / storage_bytes(request.number);
  const int64_t gate_rows = kCells[request.cell].rows(p.hidden);
  return at_chunk(p.grad_gates) && p.hidden % elements == 0 && gate_rows % elements == 0
             ? Staging::kByChunks
             : Staging::kByElements;
}

// Columns of a matmul's operand that a block of so many units makes.
inline PerMatmul<int> made_by_block(const Request& request, int units) {
  const CellDescription& cell = kCells[request.cell];
  PerMatmul<int> made{};
  for (int matmul = 0; matmul < cell.stages; ++matmul) {
    made[matmul] = request.pass == Pass::kForward
                       ? units
                       : static_cast<int>(cell.rows_of_matmul(matmul, units));
  }
  return made;
}

// As launches are counted and errors name them.
struct KernelNames {
  const char* through_l2;
  const char* in_cluster;
};

// Launches kernel<Cell, Exchange>, given as kernels(TypeTag<Cell>, TypeTag<Exchange>).
template <class Params, class Kernels>
void launch_cooperatively(const KernelNames& names, const Request& request, const Plan& plan,
                          const Params& params, Stream stream, Kernels kernels) {
  const int units = plan.units_per_block;
  const int unit_groups = static_cast<int>(plan.blocks / plan.tile_groups);
  const Grid grid{static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.threads),
                  static_cast<size_t>(plan.shared_bytes), static_cast<unsigned>(plan.cluster)};
  const auto launch_exchange = [&](auto cell, auto exchange, const auto& layout) {
    using Cell = typename decltype(cell)::Type;
    using Exchange = typename decltype(exchange)::Type;
    const Cooperative<Params, typename Exchange::Matmul> parameters{params,
                                                                    units,
                                                                    unit_groups,
                                                                    plan.tile_groups,
                                                                    staging_of(request, params),
                                                                    made_by_block(request, units),
                                                                    layout};
    if constexpr (Exchange::kIsCluster) {
      launch_clusters({Cell::kName, names.in_cluster}, kernels(cell, exchange), grid, stream,
                      parameters);
    } else {
      launch_cooperative({Cell::kName, names.through_l2}, kernels(cell, exchange), grid, stream,
                         parameters);
    }
  };
  with_cell(request.cell, [&](auto cell) {
    using Cell = typename decltype(cell)::Type;
    if constexpr (Cell::kCooperative) {
      with_storage_type(request.number, [&](auto tag) {
        using T = typename decltype(tag)::Type;
        if constexpr (sizeof(T) == 2) {
          if (plan.path == Path::kCluster) {
            constexpr int kTiles = Tiles::cluster_register_tiles(Cell::kStages);
            return launch_exchange(cell, TypeTag<InCluster<TensorCoreMatmul<T, kTiles>>>{},
                                   cluster_layout(request, units));
          }
          if (plan.tensor_cores) {
            constexpr int kTiles = Tiles::register_tiles(Cell::kStages);
            return launch_exchange(cell, TypeTag<ThroughL2<TensorCoreMatmul<T, kTiles>>>{},
                                   tensor_layout(request, units, plan.staged_bytes));
          }
        }
        launch_exchange(cell, TypeTag<ThroughL2<CooperativeMatmul<T>>>{},
                        cooperative_layout(request, units, plan.staged_bytes));
      });
    }
  });
}

}  // namespace rotcell::cuda
