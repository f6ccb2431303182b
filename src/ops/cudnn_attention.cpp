#ifdef GPT_CUDA
#include "cudnn_attention.h"

#include <ATen/cudnn/Handle.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <cudnn_frontend.h>

#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/log.h"

namespace gpt::ops::cuda {
namespace {

namespace frontend = cudnn_frontend;
using TensorOfGraph = std::shared_ptr<frontend::graph::Tensor_attributes>;

void check(frontend::error_t result) { TORCH_CHECK(result.is_good(), "cuDNN: ", result.get_message()); }

// Heads of positions of samples, where `heads` of them lie side by side.
struct StridedHeads {
  int64_t count, heads;

  std::vector<int64_t> sizes(const PackedAttention& shape) const { return {shape.B, count, shape.T, shape.D}; }
  std::vector<int64_t> strides(const PackedAttention& shape) const {
    return {shape.T * heads * shape.D, shape.D, heads * shape.D, 1};
  }
};

class BackwardPass {
 public:
  explicit BackwardPass(const PackedAttention& shape) : shape_(shape) {
    const StridedHeads queries{shape.H, all()}, keys{shape.KV, all()}, outputs{shape.H, shape.H};
    graph_.set_io_data_type(shape.type == at::kHalf ? frontend::DataType_t::HALF : frontend::DataType_t::BFLOAT16)
        .set_intermediate_data_type(frontend::DataType_t::FLOAT)
        .set_compute_data_type(frontend::DataType_t::FLOAT);
    const auto q = input(kQ, queries), k = input(kK, keys), v = input(kV, keys), output = input(kOutput, outputs),
               output_gradient = input(kOutputGradient, outputs);
    const auto log_sum = graph_.tensor(frontend::graph::Tensor_attributes()
                                           .set_uid(kLogSum)
                                           .set_dim({shape.B, shape.H, shape.T, 1})
                                           .set_stride({shape.H * shape.T, shape.T, 1, 1})
                                           .set_data_type(frontend::DataType_t::FLOAT));
    const auto options = frontend::graph::SDPA_backward_attributes()
                             .set_attn_scale(static_cast<float>(1 / std::sqrt(static_cast<double>(shape.D))))
                             .set_diagonal_alignment(frontend::DiagonalAlignment_t::TOP_LEFT)
                             .set_diagonal_band_right_bound(0)
                             .set_deterministic_algorithm(shape.is_deterministic);
    const auto [of_q, of_k, of_v] = graph_.sdpa_backward(q, k, v, output, output_gradient, log_sum, options);
    return_(kOfQ, of_q, queries), return_(kOfK, of_k, keys), return_(kOfV, of_v, keys);
    check(graph_.build(at::native::getCudnnHandle(), {frontend::HeurMode_t::A}));
    check(graph_.get_workspace_size(workspace_bytes_));
  }

  void run(const at::Tensor& qkv, const at::Tensor& output, const at::Tensor& log_sum,
           const at::Tensor& output_gradient, const at::Tensor& gradient) {
    const auto heads_of = [this](const at::Tensor& packed, int64_t first) {
      return static_cast<char*>(packed.data_ptr()) + first * shape_.D * packed.element_size();
    };
    const int64_t first_k = shape_.H, first_v = shape_.H + shape_.KV;
    std::unordered_map<int64_t, void*> places{{kQ, heads_of(qkv, 0)},
                                              {kK, heads_of(qkv, first_k)},
                                              {kV, heads_of(qkv, first_v)},
                                              {kOutput, output.data_ptr()},
                                              {kLogSum, log_sum.data_ptr()},
                                              {kOutputGradient, output_gradient.data_ptr()},
                                              {kOfQ, heads_of(gradient, 0)},
                                              {kOfK, heads_of(gradient, first_k)},
                                              {kOfV, heads_of(gradient, first_v)}};
    // Freed when the kernels have been launched: what comes next on this stream may have it then.
    const at::Tensor workspace = at::empty({workspace_bytes_}, qkv.options().dtype(at::kByte));
    check(graph_.execute(at::native::getCudnnHandle(), places, workspace.data_ptr()));
  }

 private:
  enum Name : int64_t { kQ, kK, kV, kOutput, kLogSum, kOutputGradient, kOfQ, kOfK, kOfV };

  int64_t all() const { return shape_.H + 2 * shape_.KV; }

  TensorOfGraph input(Name name, const StridedHeads& heads) {
    return graph_.tensor(frontend::graph::Tensor_attributes()
                             .set_uid(name)
                             .set_dim(heads.sizes(shape_))
                             .set_stride(heads.strides(shape_)));
  }

  void return_(Name name, const TensorOfGraph& tensor, const StridedHeads& heads) {
    tensor->set_output(true).set_uid(name).set_dim(heads.sizes(shape_)).set_stride(heads.strides(shape_));
  }

  PackedAttention shape_;
  frontend::graph::Graph graph_;
  int64_t workspace_bytes_ = 0;
};

// Forward and backward pass are on different threads.
std::mutex mutex;
// Null where cuDNN has none.
std::map<PackedAttention, std::unique_ptr<BackwardPass>>& known() {
  static std::map<PackedAttention, std::unique_ptr<BackwardPass>> known;
  return known;
}

bool is_recording() { return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None; }

}  // namespace

bool has_packed_backward(const PackedAttention& shape) {
  const std::lock_guard lock(mutex);
  const auto found = known().find(shape);
  if (found != known().end()) return found->second != nullptr;
  if (is_recording()) return false;
  auto& pass = known()[shape];
  try {
    pass = std::make_unique<BackwardPass>(shape);
  } catch (const c10::Error& error) {
    log::warn("The gradient of attention is packed by a kernel of its own: " + first_line(error.what()));
  }
  return pass != nullptr;
}

void packed_backward(const PackedAttention& shape, const at::Tensor& qkv, const at::Tensor& output,
                     const at::Tensor& log_sum, const at::Tensor& output_gradient, const at::Tensor& gradient) {
  const std::lock_guard lock(mutex);
  known().at(shape)->run(qkv, output, log_sum, output_gradient, gradient);
}

}  // namespace gpt::ops::cuda
#endif
