"""Builds the tf-cdops distribution; tool settings are in pyproject.toml."""

import pathlib
import runpy

import setuptools

HERE = pathlib.Path(__file__).parent
VERSIONS = runpy.run_path(str(HERE / "tf_cdops" / "base" / "version.py"))
TENSORFLOW = f">={VERSIONS['TENSORFLOW_OLDEST']}"

setuptools.setup(
    name="tf-cdops",
    version=VERSIONS["__version__"],
    description="All-reduce for tf.distribute.MirroredStrategy.",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    author="The tf_cdops authors",
    python_requires=">=3.10",
    packages=setuptools.find_packages(include=["tf_cdops", "tf_cdops.*"]),
    package_data={"tf_cdops": ["py.typed"]},
    # TensorFlow has several distributions, so each is an extra and none is
    # required; importing tf_cdops without one says which to install.
    install_requires=["absl-py>=1.4", "numpy>=1.26", "rich>=13"],
    extras_require={
        "cpu": [f"tensorflow-cpu{TENSORFLOW}"],
        "tensorflow": [f"tensorflow{TENSORFLOW}"],
        "and-cuda": [f"tensorflow[and-cuda]{TENSORFLOW}"],
        "plot": ["matplotlib>=3.8"],
        "demo": ["scikit-learn>=1.4"],
        "dev": [
            "hypothesis>=6.100",
            "matplotlib>=3.8",
            "mypy>=1.10",
            "pytest>=8",
            "pytest-timeout>=2.3",
            "pytest-xdist>=3.6",
            "ruff>=0.8",
            "scikit-learn>=1.4",
            "setuptools>=77",
            "wheel",
        ],
    },
    entry_points={"console_scripts": ["tf_cdops=tf_cdops.cli.main:main"]},
    classifiers=[
        "Intended Audience :: Developers",
        "Programming Language :: Python :: 3 :: Only",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: System :: Distributed Computing",
        "Typing :: Typed",
    ],
)
