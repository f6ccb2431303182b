// LibTorch's wheel has all of ProcessGroupGloo, but not the headers of Gloo that its own header names. Of Gloo's types ours only handles
// pointers that LibTorch made, so that these declarations are enough; nothing of Gloo is constructed here.
#pragma once
