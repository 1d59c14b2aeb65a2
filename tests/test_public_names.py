"""Every name that users of MXNet know exists, is documented, and takes the keywords it took."""

from __future__ import annotations

import doctest
import inspect
from importlib import import_module
from typing import Any

import pytest

import gemel
from gemel import autograd, np
from gemel.gluon import nn


def spread(text: str) -> list[str]:
    """The words of a text, with Conv{1,2}D expanded."""
    found: list[str] = []
    for word in text.split():
        names = [word]
        while any("{" in name for name in names):
            split = [(name, *name.partition("{")) for name in names]
            names = [
                before + choice + after
                for _, before, _, rest in split
                for inside, _, after in [rest.partition("}")]
                for choice in inside.split(",")
            ]
        found += names
    return found


#: Names, by module.
NAMES = {
    "": """Context Device autograd compile context cpu cpu_pinned current_context current_device
        device gluon gpu gpu_memory_info image init initializer kv kvstore lr_scheduler metric nd
        ndarray np npx num_gpus optimizer profiler random recordio sym symbol util save load""",
    "np": """abs add all any append arange arccos arccosh arcsin arctan argmax argmin argsort array
        around average bincount broadcast_to ceil clip concatenate copy cos cosh cross cumsum delete
        diag diff divide dot dsplit einsum empty empty_like equal exp expand_dims expm1 eye finfo
        fix flatnonzero flip floor fmax full full_like genfromtxt greater greater_equal hsplit
        hstack hypot identity iinfo inf inner insert interp invert isfinite isinf isnan kron lcm
        less linspace log log10 log1p log2 logical_and logical_not logical_or logspace matmul max
        maximum may_share_memory mean median meshgrid min minimum mod moveaxis multiply nan
        nan_to_num ndarray negative newaxis nonzero not_equal ones ones_like outer pad percentile pi
        polyval power prod quantile ravel reciprocal repeat reshape rint roll rollaxis rot90
        set_printoptions shape sign sin sinh sort split sqrt square squeeze stack std subtract sum
        swapaxes take tan tanh tensordot tile trace transpose tri tril triu true_divide trunc unique
        vander var vdot vsplit vstack where zeros zeros_like float16 float32 float64 int8 int32
        int64 uint8 bool_ linalg random""",
    "np.random": """beta choice exponential gamma gumbel laplace logistic lognormal multinomial
        multivariate_normal normal pareto permutation power rand randint randn rayleigh seed shuffle
        uniform weibull""",
    "np.linalg": "cholesky det eig eigh inv lstsq norm pinv qr slogdet solve svd tensorinv",
    "npx": """activation arange_like batch_dot batch_flatten batch_norm cond convolution cpu
        cpu_pinned current_device deconvolution dropout embedding erf erfinv foreach fully_connected
        gamma gammaln gather_nd gelu gpu group_norm instance_norm is_np_array is_np_shape layer_norm
        leaky_relu load log_softmax masked_softmax multibox_{prior,detection,target} num_gpus
        one_hot pick pooling relu reset_np reshape_like rnn roi_pooling save sequence_mask set_np
        shape_array sigmoid slice smooth_l1 softmax topk waitall while_loop""",
    "onnx": "export load export_model get_model_metadata import_model import_to_gluon",
    "gluon": """Block HybridBlock SymbolBlock Parameter ParameterDict Constant Trainer data loss
        metric model_zoo nn parameter rnn utils fit""",
    "gluon.nn": """Block HybridBlock Sequential HybridSequential Concatenate HybridConcatenate
        Concurrent HybridConcurrent Lambda HybridLambda Identity SymbolBlock Dense Conv{1,2,3}D
        Conv{1,2,3}DTranspose {Max,Avg,GlobalMax,GlobalAvg}Pool{1,2,3}D ReflectionPad2D Flatten
        Embedding Dropout BatchNorm SyncBatchNorm LayerNorm GroupNorm InstanceNorm Activation
        LeakyReLU PReLU ELU SELU GELU SiLU Swish PixelShuffle{1,2,3}D""",
    "gluon.loss": """Loss {L1,L2,SoftmaxCrossEntropy,SoftmaxCE,SigmoidBinaryCrossEntropy}Loss
        {SigmoidBCE,KLDiv,CTC,Huber,Hinge,SquaredHinge,Logistic,Triplet,PoissonNLL}Loss
        {CosineEmbedding,SDML}Loss""",
    "gluon.rnn": """RNN LSTM GRU RNNCell LSTMCell GRUCell SequentialRNNCell DropoutCell ResidualCell
        ZoneoutCell BidirectionalCell HybridSequentialRNNCell RecurrentCell
        HybridRecurrentCell""",
    "gluon.data": """Dataset SimpleDataset ArrayDataset RecordFileDataset DataLoader Sampler
        SequentialSampler RandomSampler BatchSampler FilterSampler vision""",
    "gluon.data.vision": """MNIST FashionMNIST CIFAR10 CIFAR100 ImageFolderDataset MNIST5k
        ImageRecordDataset transforms datasets""",
    "gluon.data.vision.datasets": "MNIST ImageFolderDataset",
    "gluon.data.vision.transforms": """Compose Cast ToTensor Normalize Resize CenterCrop
        RandomResizedCrop RandomCrop RandomFlip{LeftRight,TopBottom}
        Random{Brightness,Contrast,Saturation,Hue,ColorJitter,Lighting,Gray}""",
    "gluon.utils": "split_data split_and_load clip_global_norm download check_sha1",
    "gluon.parameter": "Parameter ParameterDict Constant DeferredInitializationError",
    "gluon.metric": """Accuracy TopKAccuracy F1 MCC MAE MSE RMSE CrossEntropy NegativeLogLikelihood
        Perplexity PearsonCorrelation PCC Loss CompositeEvalMetric CustomMetric""",
    "gluon.model_zoo.vision": """alexnet densenet{121,161,169,201} inception_v3 get_model
        mobilenet{1_0,0_75,0_5,0_25,_v2_1_0,_v2_0_75,_v2_0_5,_v2_0_25,_v3_large,_v3_small}
        resnet{18,34,50,101,152}_v{1,2} squeezenet1_{0,1} vgg{11,13,16,19} vgg{11,13,16,19}_bn""",
    "init": """Zero One Constant Uniform Normal TruncNorm Orthogonal Xavier MSRAPrelu Bilinear
        LSTMBias Mixed Initializer""",
    "optimizer": """SGD NAG Adam AdamW Adamax Nadam AdaGrad AdaDelta RMSProp Ftrl FTML LAMB LARS
        Signum SGLD DCASGD AdaBelief LANS Optimizer create""",
    "lr_scheduler": "LRScheduler {Factor,MultiFactor,Poly,Cosine}Scheduler",
    "metric": "RMSE NegativeLogLikelihood Accuracy",
    "autograd": """record pause train_mode predict_mode is_recording is_training backward grad
        get_symbol mark_variables Function set_recording set_training""",
    "profiler": """set_config set_state pause resume dump dumps Domain Task Frame Event Counter
        Marker scope""",
    "kvstore": "create",
    "image": """imread imdecode imresize resize_short fixed_crop random_crop center_crop
        color_normalize""",
    "recordio": "MXRecordIO MXIndexedRecordIO IRHeader pack unpack pack_img unpack_img",
    "context": "Context cpu gpu cpu_pinned current_context num_gpus gpu_memory_info",
    "device": "Device cpu gpu current_device num_gpus",
    "util": "set_np reset_np use_np is_np_array is_np_shape np_array np_shape makedirs getenv",
    "symbol": "np npx",
    "ndarray": "np npx FullyConnected Activation concat random nansum",
    "d2l": "Timer Benchmark try_gpu try_all_gpus get_mem",
    "torch": """Tensor device randn ones zeros mm matmul no_grad nn jit cuda tensor""",
    "torch.nn": "Module Sequential Linear ReLU",
    "torch.jit": "script load",
    "torch.cuda": "synchronize device_count is_available",
}

#: Methods and properties, by class.
MEMBERS: dict[Any, str] = {
    np.ndarray: """shape dtype ndim size T ctx device context grad asnumpy asscalar item tolist sum
        mean max min std var prod argmax argmin argsort sort reshape flatten transpose swapaxes
        squeeze expand_dims repeat cumsum clip dot abs sqrt all any astype copy copyto as_in_ctx
        as_in_context to_device detach attach_grad backward wait_to_read as_nd_ndarray
        as_np_ndarray zero_grad""",
    nn.Block: """initialize collect_params apply forward hybridize save_parameters load_parameters
        load_dict cast summary register_child register_forward_hook register_forward_pre_hook
        params name prefix name_scope setattr zero_grad reset_ctx""",
    nn.HybridBlock: "export infer_shape hybrid_forward",
    gemel.gluon.Parameter: """data grad set_data list_data list_ctx list_grad zero_grad reset_ctx
        cast var grad_req lr_mult wd_mult shape dtype initialize name""",
    gemel.gluon.ParameterDict: """get get_constant initialize zero_grad reset_ctx setattr save load
        keys values items""",
    gemel.gluon.Trainer: """step allreduce_grads update learning_rate set_learning_rate save_states
        load_states optimizer""",
    nn.Sequential: "add",
}

#: Keywords of public functions, in both spellings.
KEYWORDS = {
    "np.array": "dtype device ctx",
    "np.zeros": "dtype device ctx",
    "np.ones": "dtype device ctx",
    "np.full": "dtype device ctx",
    "np.arange": "dtype device ctx",
    "np.linspace": "endpoint dtype device ctx",
    "np.eye": "dtype device ctx",
    "np.random.normal": "loc scale size dtype device ctx",
    "np.random.uniform": "low high size dtype device ctx",
    "np.random.randint": "low high size dtype device ctx",
    "np.random.seed": "seed ctx device",
    "gluon.nn.Dense": """units activation use_bias flatten in_units weight_initializer
        bias_initializer""",
    "gluon.nn.Conv2D": """channels kernel_size strides padding dilation groups layout activation
        use_bias weight_initializer bias_initializer in_channels""",
    "gluon.nn.BatchNorm": "axis momentum epsilon center scale use_global_stats in_channels",
    "gluon.nn.Embedding": "input_dim output_dim dtype weight_initializer",
    "gluon.nn.Block.initialize": "init device ctx verbose force_reinit",
    "gluon.data.DataLoader": """dataset batch_size shuffle sampler last_batch batch_sampler
        batchify_fn num_workers pin_memory prefetch timeout""",
    "gluon.utils.split_and_load": "data ctx_list batch_axis even_split",
    "np.ndarray.backward": "out_grad retain_graph train_mode",
    "autograd.backward": "heads head_grads retain_graph train_mode",
    "autograd.grad": "heads variables head_grads retain_graph create_graph train_mode",
    "gluon.Trainer": """params optimizer optimizer_params kvstore compression_params
        update_on_kvstore""",
    "gluon.Trainer.step": "batch_size ignore_stale_grad",
    "gluon.Parameter": """name grad_req shape dtype lr_mult wd_mult init allow_deferred_init
        differentiable stype grad_stype""",
    "gluon.Parameter.data": "ctx device",
    "gluon.Parameter.initialize": "init ctx device default_init force_reinit",
    "gluon.rnn.LSTM": """hidden_size num_layers layout dropout bidirectional input_size
        i2h_weight_initializer h2h_weight_initializer i2h_bias_initializer h2h_bias_initializer""",
    "gluon.loss.SoftmaxCrossEntropyLoss": "axis sparse_label from_logits weight batch_axis",
    "init.Xavier": "rnd_type factor_type magnitude",
    "npx.convolution": """data weight bias kernel stride dilate pad num_filter num_group no_bias
        layout""",
    "npx.pooling": "data kernel stride pad pool_type pooling_convention global_pool",
    "npx.sequence_mask": "data sequence_length use_sequence_length value axis",
    "npx.topk": "axis k ret_typ is_ascend dtype",
    "npx.one_hot": "depth on_value off_value dtype",
    "npx.batch_dot": "transpose_a transpose_b",
    "npx.dropout": "p mode axes",
    "npx.multibox_prior": "sizes ratios clip steps offsets",
    "npx.foreach": "body data init_states",
    "npx.while_loop": "cond func loop_vars max_iterations",
    "npx.cond": "then_func else_func inputs",
}


def found(path: str) -> Any:
    """The value of a dotted name in gemel."""
    value: Any = gemel
    for name in path.split(".") if path else ():
        try:
            value = getattr(value, name)
        except AttributeError:
            value = import_module(f"{value.__name__}.{name}")
    return value


def documented(value: Any) -> bool:
    """Whether a value has a docstring; numbers and aliases of dtypes need none."""
    described = not isinstance(value, (int, float, type(None)))
    return not described or bool(inspect.getdoc(value))


@pytest.mark.parametrize("module", NAMES)
def test_names_resolve_and_are_documented(module: str) -> None:
    missing, silent = [], []
    for name in spread(NAMES[module]):
        try:
            value = found(f"{module}.{name}" if module else name)
        except (AttributeError, ImportError):
            missing.append(name)
            continue
        if not documented(value):
            silent.append(name)
    assert not missing, f"gemel.{module} lacks {missing}"
    assert not silent, f"gemel.{module} does not say what these are: {silent}"


@pytest.mark.parametrize("kind", MEMBERS, ids=lambda kind: kind.__name__)
def test_members_are_there(kind: Any) -> None:
    names = MEMBERS[kind].split()
    instance = kind() if kind is gemel.gluon.ParameterDict else None
    missing = [n for n in names if not hasattr(kind, n) and not hasattr(instance, n)]
    known = {"name", "shape", "lr_mult", "wd_mult", "dtype", "prefix"}  # set in the constructor
    assert not [name for name in missing if name not in known]


@pytest.mark.parametrize("path", KEYWORDS)
def test_keywords_are_taken(path: str) -> None:
    parameters = inspect.signature(found(path)).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        pytest.skip("takes any keyword: tests of its own say which")
    missing = [name for name in KEYWORDS[path].split() if name not in parameters]
    assert not missing, f"gemel.{path} does not take {missing}"


def test_both_spellings_mean_the_same() -> None:
    place = gemel.cpu(1)
    for spelling in ("ctx", "device"):
        there = {spelling: place}
        made = [np.zeros(2, **there), np.random.normal(size=2, **there), np.array([1], **there)]
        made += [np.arange(3, **there), np.full((2,), 1, **there), np.random.uniform(**there)]
        assert all(array.ctx == array.device == array.context == place for array in made)
        net = nn.Dense(2, in_units=2)
        net.initialize(**there)
        assert net.weight.data(**there).ctx == place
    assert gemel.Context is gemel.Device and gemel.context.current_context() == gemel.cpu()
    with gemel.Context("cpu", 2):
        assert gemel.current_context() == gemel.current_device() == gemel.cpu(2)
        assert np.zeros(1).ctx == gemel.cpu(2)
        with gemel.cpu(3):
            assert gemel.context.current_context() == gemel.Context("cpu", 3)
    assert not autograd.is_recording()


def test_unknown_names_suggest_the_nearest() -> None:
    for module, wrong, right in [
        (gemel, "gloun", "gluon"), (nn, "Dens", "Dense"), (np, "concatenat", "concatenate"),
    ]:  # fmt: skip
        with pytest.raises(AttributeError, match=f"did you mean '{right}'"):
            getattr(module, wrong)


def test_tools_that_read_modules_may_ask_what_they_hold() -> None:
    """`doctest` unwraps every value it finds in a module."""
    assert doctest.DocTestFinder().find(import_module("gemel.ops.shape"))
