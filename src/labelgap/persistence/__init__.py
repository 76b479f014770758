"""Model files: JSON and .npy in a zip or a folder, with a format number, checksums and no pickle."""

from labelgap.persistence.model import CHECKSUMS, FORMAT, HEADER, read_header, read_model, write_model
from labelgap.persistence.storage import ModelFileError

__all__ = ["CHECKSUMS", "FORMAT", "HEADER", "ModelFileError", "read_header", "read_model", "write_model"]
