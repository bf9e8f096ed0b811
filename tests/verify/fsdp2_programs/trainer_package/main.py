"""A trainer class in a package; a config decides at run time how the model is sharded."""

from trainer import Config, Trainer


def main(steps, save=None, resume=None):
    trainer = Trainer(Config(strategy="grad_op", accumulate=2))
    if resume:
        trainer.load(resume)
    losses = [trainer.step(number) for number in range(steps)]
    if save:
        trainer.save(save)
    return {"losses": losses, "model": trainer.model, "optimizer": trainer.optimizer, "shown": trainer.describe()}
